package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// TestLookWhileSourcesHang: what hangs is waited for once, by one of those who look, and then not again at once.
func TestLookWhileSourcesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, read atomic.Int32
		sources := newWorld().sources()
		sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
			asked.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		sources.Records = hanging{read: &read}
		looker := view.NewLooker(sources)
		left, leave := context.WithCancel(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if state := looker.Look(left); len(state.Campaigns) == 0 || len(state.Faults) != 2 {
					t.Errorf("%d campaigns, faults %q", len(state.Campaigns), state.Faults)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 3*time.Second || asked.Load() != 1 {
			t.Errorf("five who look wait for %s, and ask %d times", took, asked.Load())
		}
		began = time.Now()
		looker.Look(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("the next one waits for %s", took)
		}
		// One looks again and leaves at once: the others are shown the last state meanwhile, and then what it has found.
		time.Sleep(time.Second)
		leave()
		all.Go(func() { looker.Look(left) })
		synctest.Wait()
		began = time.Now()
		state := looker.Look(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("somebody waits for %s while another looks", took)
		}
		all.Wait()
		if again := looker.Look(t.Context()); !again.At.After(state.At) || len(again.Faults) != 2 || asked.Load() != 2 || read.Load() != 1 {
			t.Errorf("then the state is of %s, faults %q, asked %d and %d times", again.At, again.Faults, asked.Load(), read.Load())
		}
		// A state that is too old is not shown: who comes now waits, but not for longer than it wants to.
		time.Sleep(time.Minute)
		all.Go(func() { looker.Look(t.Context()) })
		synctest.Wait()
		if state := looker.Look(left); len(state.Campaigns) != 0 {
			t.Errorf("a state of %s is shown at %s", state.At, time.Now())
		}
		all.Wait()
	})
}

// hanging is a database that does not answer.
type hanging struct {
	view.Records
	read *atomic.Int32
}

func (h hanging) Campaigns(ctx context.Context) (map[string]view.Record, error) {
	h.read.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestNobodyLooksForStrangers: the form for logging in asks no service.
func TestNobodyLooksForStrangers(t *testing.T) {
	w := guarded()
	w.guard.Anonymous = auth.None
	w.snapshot = nil // which a state says
	if code, body, _ := get(t, serve(w), "/login"); code != http.StatusOK || w.looked.Load() != 0 {
		t.Errorf("%d, looked %d times: %s", code, w.looked.Load(), body)
	}
}

// TestLettersThatAreNotAll: where not all letters were looked at, the page says that there are older ones.
func TestLettersThatAreNotAll(t *testing.T) {
	w := newWorld()
	for _, more := range []bool{false, true} {
		w.more = more
		if code, body, _ := get(t, serve(w), "/dead"); code != http.StatusOK || !strings.Contains(body, "<caption>The newest ones<") || strings.Contains(body, "there are older ones") != more ||
			strings.Contains(body, `<a href="dead?after=AQID&amp;`) != more {
			t.Errorf("more %t: %d %s", more, code, body)
		}
		if code, body, _ := get(t, serve(w), "/dead?after=AQID&last=7d"); code != http.StatusOK || !strings.Contains(body, "<caption>Older ones<") || strings.Contains(body, "?after=") {
			t.Errorf("more %t: %d %s", more, code, body)
		}
	}
}

// TestSendersAreAskedForByOneAtATime: whoever comes while an answer is under way, or hangs, does without.
func TestSendersAreAskedForByOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := newWorld().sources()
		asked := 0
		sources.Senders = func(ctx context.Context, _ *delivery.Campaign) ([]view.Sender, error) {
			asked++
			<-ctx.Done()
			return nil, ctx.Err()
		}
		looker := view.NewLooker(sources)
		looker.Look(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if c := looker.Campaign(t.Context(), "spring"); c == nil || c.Senders != nil {
					t.Errorf("%+v", c)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); asked != 1 || took > 5*time.Second {
			t.Errorf("asked %d times in %s", asked, took)
		}
	})
}

// TestSendersAreShown: the page of a campaign has them, and is watched once a second by many for one answer in two.
func TestSendersAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources, asked := newWorld().sources(), 0
		sources.Senders = func(context.Context, *delivery.Campaign) ([]view.Sender, error) {
			asked++
			return []view.Sender{{Daemon: "host-a-17", Lanes: []int{1, 2, 3}, InMemory: 4}}, nil
		}
		looker := view.NewLooker(sources)
		for range 10 {
			for range 5 {
				if senders := looker.Senders(t.Context(), "spring"); len(senders) != 1 || senders[0].InMemory != 4 {
					t.Errorf("sent by %+v", senders)
				}
			}
			time.Sleep(time.Second)
		}
		if asked != 5 || looker.Senders(t.Context(), "nobody") != nil {
			t.Errorf("asked %d times", asked)
		}
	})
	if _, body, _ := get(t, serve(newWorld()), "/campaign?id=spring"); !strings.Contains(body, `<th scope="row" data-label="Daemon">a</th>`) {
		t.Error("the page of the campaign does not say who sends it")
	}
}

// TestRevisionIsOfWhatIsShown: whoever changes a campaign as they saw it must have seen all of it at that revision: as the database has it,
// or where that does not answer, not later than the oldest thing that is shown.
func TestRevisionIsOfWhatIsShown(t *testing.T) {
	w := newWorld()
	w.snapshot.Campaigns["spring"].Revision = 8
	h := serve(w)
	for _, tt := range []struct {
		away       error
		etag, rate string
	}{{nil, `"7"`, "100"}, {errAway, `"6"`, "99"}} {
		w.away = tt.away
		code, body, header := get(t, h, "/api/v1/campaigns/spring")
		var c view.Campaign
		if err := json.Unmarshal([]byte(body), &c); err != nil || code != http.StatusOK || header.Get("ETag") != tt.etag || `"`+strconv.FormatInt(c.Revision, 10)+`"` != tt.etag || c.Rate != tt.rate {
			t.Errorf("%d: ETag %s of revision %d with rate %s; want %s and %s (%v)", code, header.Get("ETag"), c.Revision, c.Rate, tt.etag, tt.rate, err)
		}
		if len(c.Senders) != 1 || c.Senders[0].Daemon != "a" || c.Senders[0].InMemory != 3 {
			t.Errorf("sent by %+v", c.Senders)
		}
	}
}
