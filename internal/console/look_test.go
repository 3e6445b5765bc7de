package console

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/progress"
)

// fleetAfter are sources whose daemons' exchange is read after this, unless it fails.
func fleetAfter(first func() error) func(*view.Sources) {
	return func(sources *view.Sources) {
		fleet := sources.Fleet
		sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
			if err := first(); err != nil {
				return nil, err
			}
			return fleet(ctx)
		}
	}
}

// TestLookWhileSourcesHang: only one request waits for a hanging source, and none again soon after.
func TestLookWhileSourcesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, read atomic.Int32
		sources := newWorld().sources()
		sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
			asked.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		sources.Catalog = hanging{read: &read}
		watcher := view.NewWatcher(sources)
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if state := watcher.Look(t.Context()); len(state.Campaigns) == 0 || len(state.Faults) != 2 {
					t.Errorf("%d campaigns, faults %q", len(state.Campaigns), state.Faults)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 3*time.Second || asked.Load() != 1 {
			t.Errorf("five who look wait for %s, and ask %d times", took, asked.Load())
		}
		defer running(t, watcher.Run)()
		for range 60 {
			began = time.Now()
			state := watcher.Look(t.Context())
			if took := time.Since(began); took > 0 || len(state.Faults) != 2 || began.Sub(state.At) > 5*time.Second {
				t.Errorf("after that one waits for %s, for a state of %s, faults %q", took, began.Sub(state.At), state.Faults)
			}
			time.Sleep(time.Second)
		}
		if asked.Load() < 15 || read.Load() < 8 || read.Load() > 10 {
			t.Errorf("asked %d and %d times", asked.Load(), read.Load())
		}
	})
}

// hanging is a database that does not answer.
type hanging struct {
	view.Catalog
	read *atomic.Int32
}

func (h hanging) ReadOnly(context.Context) (string, error) { return "", nil }

func (h hanging) ListCampaigns(ctx context.Context) ([]catalog.CampaignRow, error) {
	h.read.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestWhoeverLooksFindsAState: each request finds a state of the last seconds, also the first one after a long time, which renews it.
func TestWhoeverLooksFindsAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		_, s := serveOf(w)
		looking(t, s)
		for _, idle := range []time.Duration{time.Second, 29 * time.Second, time.Minute, time.Hour} {
			time.Sleep(idle)
			began, most := time.Now(), time.Second
			if idle > 30*time.Second {
				most = 10 * time.Second
			}
			if age := began.Sub(s.watcher.Look(t.Context()).At); age > most || time.Since(began) > 0 {
				t.Errorf("after %s without a look the state is %s old, after waiting for %s", idle, age, time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
			if age := time.Since(s.watcher.Look(t.Context()).At); idle > 30*time.Second && age != 100*time.Millisecond {
				t.Errorf("and then %s", age)
			}
		}
		before := w.looked.Load()
		time.Sleep(time.Hour)
		if looked := w.looked.Load() - before; looked > 400 {
			t.Errorf("looked %d times in an hour in which nobody did", looked)
		}
	})
}

// TestManyCampaignsCostLittleWhereNobodyLooks: their state is kept for viewers only, and there for the first one, with the rates.
func TestManyCampaignsCostLittleWhereNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var states atomic.Int32
		w := newWorld()
		w.crowd(2_001)
		_, s := serveOf(w, func(sources *view.Sources) {
			gates := sources.Gates
			sources.Gates = func(ctx context.Context) ([]delivery.Gate, error) {
				states.Add(1)
				return gates(ctx)
			}
		})
		defer running(t, s.Run)()
		for range 2 {
			time.Sleep(time.Minute)
			before, looked := states.Load(), w.looked.Load()
			time.Sleep(time.Hour)
			if states.Load() > before || w.looked.Load()-looked > 400 {
				t.Errorf("%d states in an hour in which nobody looked, %d looks", states.Load()-before, w.looked.Load()-looked)
			}
			if state := s.watcher.Look(t.Context()); len(state.Campaigns) < 2_001 || time.Since(state.At) > time.Second || state.Sent == nil {
				t.Errorf("%d campaigns, %s old, sent: %v", len(state.Campaigns), time.Since(state.At), state.Sent)
			}
			time.Sleep(10 * time.Second)
			if age := time.Since(s.watcher.Look(t.Context()).At); age > 2*time.Second {
				t.Errorf("while a page is open the state is %s old", age)
			}
		}
	})
}

// TestTheFirstLookAfterAStart: a process that looked before its sources answered looks again before anybody does.
func TestTheFirstLookAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := time.Now().Add(1500 * time.Millisecond)
		_, s := serveOf(newWorld(), fleetAfter(func() error {
			if time.Now().Before(ready) {
				return errors.New("not yet")
			}
			return nil
		}))
		defer running(t, s.Run)()
		time.Sleep(3 * time.Second)
		if faults := s.watcher.Look(t.Context()).Faults; len(faults) != 0 {
			t.Errorf("faults %q", faults)
		}
	})
}

// TestPagesDoNotWait: while the services hang, pages show the last state and its age.
func TestPagesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.crowd(1000)
		hang, end := atomic.Bool{}, make(chan struct{})
		wait := func() error {
			if hang.Load() {
				<-end
			}
			return nil
		}
		h, site := serveOf(w, func(sources *view.Sources) {
			fleetAfter(wait)(sources)
			senders := sources.Senders
			sources.Senders = func(ctx context.Context, c *delivery.Campaign) ([]progress.Sender, error) {
				_ = wait()
				return senders(ctx, c)
			}
		})
		looking(t, site)
		const old = "<strong>Old:</strong>"
		for _, minutes := range []time.Duration{0, 1} {
			hang.Store(minutes > 0)
			time.Sleep(minutes * time.Minute)
			for _, path := range []string{
				"/", "/campaigns", "/campaigns?sort=backlog", "/campaign?id=spring", "/quotas", "/daemons", "/api/v1/status", "/api/v1/campaigns?sort=sent",
			} {
				began, most := time.Now(), 100*time.Millisecond
				answer := get(h, path).want(t, 200)
				switch {
				case strings.HasPrefix(path, "/api") && hang.Load(): // programs want what is now, for a while
					most = 4 * time.Second
				case hang.Load():
					answer.want(t, 200, old)
				default:
					answer.lacks(t, old)
				}
				if took := time.Since(began); took > most {
					t.Errorf("%s while services hang (%t): after %s", path, hang.Load(), took)
				}
			}
		}
		close(end)
	})
}

// TestTheEndEndsWhatIsAskedFor: of what pages ask for beside the state nothing is left when the console is over, and nothing is asked then.
func TestTheEndEndsWhatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := newWorld().sources()
		var asked, over atomic.Int32
		sources.Senders = func(ctx context.Context, _ *delivery.Campaign) ([]progress.Sender, error) {
			asked.Add(1)
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			over.Add(1)
			return nil, ctx.Err()
		}
		watcher := view.NewWatcher(sources)
		end := running(t, watcher.Run)
		state := watcher.Look(t.Context())
		watcher.Detailed(t.Context(), state, "spring")
		began := time.Now()
		end()
		if took := time.Since(began); asked.Load() != 1 || over.Load() != 1 || took > 200*time.Millisecond {
			t.Errorf("after %s %d of %d questions are over", took, over.Load(), asked.Load())
		}
		time.Sleep(time.Minute)
		if watcher.Detailed(t.Context(), state, "spring"); asked.Load() != 1 {
			t.Error("a question is asked after the end")
		}
		if state := watcher.Look(t.Context()); len(state.Campaigns) > 0 {
			t.Error("a state is computed after the end")
		}
	})
}

// TestTheNextPageShowsWhatWasChanged: in the settings of the campaign, which the catalog and the counts know, and in the lists.
func TestTheNextPageShowsWhatWasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		var current, committed atomic.Pointer[delivery.Snapshot]
		current.Store(w.snapshot)
		changed := *w.snapshot.Campaigns["spring"]
		changed.Status = delivery.StatusPaused
		committed.Store(&delivery.Snapshot{Revision: 8, Campaigns: map[string]*delivery.Campaign{"spring": &changed}})
		h, site := serveOf(w, func(sources *view.Sources) {
			sources.Snapshot = current.Load
			sources.Refresh = func(context.Context) { current.Store(committed.Load()) }
			sources.Catalog = rated{sources.Catalog, func() string { return string(current.Load().Campaigns["spring"].Status) + " at 250" }}
		})
		looking(t, site)
		visit(h, "/campaign?id=spring", "operator").want(t, 200, "<td>active at 250</td>").lacks(t, ">paused</span>")
		visit(h, "/campaigns?q=spring", "operator").want(t, 200).lacks(t, ">paused</span>")
		press(h, "/pause", "operator", typed("id=spring")).want(t, 303)
		visit(h, "/campaign?id=spring", "operator").want(t, 200, "<td>paused at 250</td>", ">paused</span>")
		visit(h, "/campaigns?q=spring", "operator").want(t, 200, ">paused</span>")
	})
}

// rated says how the rates of campaigns are written.
type rated struct {
	view.Catalog
	rate func() string
}

func (r rated) ListCampaigns(ctx context.Context) ([]catalog.CampaignRow, error) {
	all, err := r.Catalog.ListCampaigns(ctx)
	for i := range all {
		all[i].Rate = r.rate()
	}
	return all, err
}

// TestNobodyLooksForStrangers: the form for logging in asks no service.
func TestNobodyLooksForStrangers(t *testing.T) {
	w := guarded()
	w.guard.Anonymous = auth.None
	w.snapshot = nil // which a state says
	if get(serve(w), "/login").want(t, 200); w.looked.Load() != 0 {
		t.Errorf("looked %d times", w.looked.Load())
	}
}

// TestPagesDoNotWaitForKafka: they say that they look, and show what is found as soon as it is, which is not looked for twice.
func TestPagesDoNotWaitForKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		w.guard.Anonymous = auth.Operator
		var looks atomic.Int32
		w.look = func() {
			looks.Add(1)
			time.Sleep(3 * time.Second)
		}
		h, site := serveOf(w, func(sources *view.Sources) {
			read := sources.Letter
			sources.Letter = func(ctx context.Context, at deadletter.Place) (*view.WholeLetter, error) {
				time.Sleep(3 * time.Second)
				return read(ctx, at)
			}
		})
		looking(t, site)
		for _, page := range []struct{ path, meanwhile, then string }{
			{"/dead?campaign=spring", `<a href="dead?campaign=spring&amp;last=1d">Look again</a>`, "<caption>The newest ones<"},
			{"/dead?after=AQID&last=7d", `<a href="dead?after=AQID&amp;last=7d">Look again</a>`, "<caption>Older ones<"},
			{"/letter?place=3/17", `<a href="letter?place=3%2f17">Look again</a>`, "<h2>Payload</h2>"},
		} {
			events, leave := watch(t, h, "/live?page="+strings.Replace(page.path[1:], "?", "&", 1))
			for _, want := range []string{page.meanwhile, page.then} {
				began := time.Now()
				get(h, page.path).want(t, 200, want)
				if took := time.Since(began); took > 50*time.Millisecond {
					t.Errorf("%s: after %s", page.path, took)
				}
				time.Sleep(4 * time.Second)
			}
			if event := events(); !strings.Contains(event, page.then) {
				t.Errorf("the stream of %s says %s", page.path, event)
			}
			leave()
		}
		before := looks.Load()
		_, leave := watch(t, h, "/live?page=dead&campaign=spring")
		time.Sleep(10 * time.Minute)
		leave()
		if n := looks.Load() - before; n < 15 || n > 25 {
			t.Errorf("looked %d times for a page that is watched for ten minutes", n)
		}
		time.Sleep(10 * time.Second)
	})
}

// TestLetters: where not all letters were looked at, the page says that there are older ones. The focus stays in its row while the page is kept
// up to date, and rows come and go.
func TestLetters(t *testing.T) {
	w := newWorld()
	const older, next = "there are older ones", `<a href="dead?after=AQID&amp;`
	body := get(serve(w), "/dead").want(t, 200, "<caption>The newest ones<").lacks(t, older, next).Body.String()
	rows := strings.Count(body, `<th scope="row" data-label="At">`)
	if named := len(regexp.MustCompile(`<tr id="r[0-9a-z]+"><th scope="row" data-label="At">`).FindAllString(body, -1)); rows == 0 || named != rows {
		t.Errorf("%d rows, of which %d have ids: %s", rows, named, body)
	}
	get(serve(w), "/dead?after=AQID&last=7d").want(t, 200, "<caption>Older ones<").lacks(t, "dead?after=")
	w.more = true
	get(serve(w), "/dead").want(t, 200, "<caption>The newest ones<", older, next)
	get(serve(w), "/dead?after=AQID&last=7d").want(t, 200, "<caption>Older ones<").lacks(t, "dead?after=")
}

// TestSendersAreAskedForByOneAtATime: requests during a question do without its answer. Many that watch a campaign get one answer in two seconds.
func TestSendersAreAskedForByOneAtATime(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sources, want := newWorld().sources(), []progress.Sender{{Daemon: "host-a-17", Lanes: []int{1, 2, 3}, InMemory: 4}}
			var asked atomic.Int32
			sources.Senders = func(ctx context.Context, _ *delivery.Campaign) ([]progress.Sender, error) {
				if asked.Add(1); !hangs {
					return want, nil
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			watcher := view.NewWatcher(sources)
			watcher.Look(t.Context())
			began := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if c, _ := watcher.Campaign(t.Context(), "spring"); c == nil || hangs && c.Senders != nil {
						t.Errorf("%+v", c)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); asked.Load() != 1 || took > 100*time.Millisecond {
				t.Errorf("asked %d times in %s", asked.Load(), took)
			}
			for range 10 {
				time.Sleep(time.Second)
				for range 5 {
					if senders := watcher.Senders(t.Context(), "spring"); !hangs && !reflect.DeepEqual(senders, want) {
						t.Errorf("sent by %+v", senders)
					}
				}
			}
			if n := asked.Load(); !hangs && n != 6 || watcher.Senders(t.Context(), "nobody") != nil {
				t.Errorf("asked %d times", n)
			}
			time.Sleep(time.Minute) // a question that hangs ends as well
		})
	}
}

// TestRevisionIsOfWhatIsShown: a shown revision is that of all shown settings. Without an answer of the database it is that of the
// oldest.
func TestRevisionIsOfWhatIsShown(t *testing.T) {
	w := newWorld()
	w.snapshot.Campaigns["spring"].Revision = 8
	h := serve(w)
	for _, tt := range []struct {
		away     error
		revision int64
		rate     string
	}{{nil, 7, "100"}, {errAway, 6, "99"}} {
		w.away = tt.away
		answer := get(h, "/api/v1/campaigns/spring")
		etag, c := answer.Header().Get("ETag"), read[view.Campaign](t, answer)
		if etag != `"`+strconv.FormatInt(tt.revision, 10)+`"` || c.Revision != tt.revision || c.Rate != tt.rate {
			t.Errorf("ETag %s of revision %d with rate %s; want %d and %s", etag, c.Revision, c.Rate, tt.revision, tt.rate)
		}
		if len(c.Senders) != 1 || c.Senders[0].Daemon != "a" || c.Senders[0].InMemory != 3 {
			t.Errorf("sent by %+v", c.Senders)
		}
	}
}
