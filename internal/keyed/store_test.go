package keyed

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/luaredis"
)

// bubble plays with a Checker on a simulated store at noon of 2026-12-01, in virtual time.
func bubble(t *testing.T, q delivery.Quota, play func(t *testing.T, r *rig, s *luaredis.Server)) {
	bubbleOf(t, 1, q, nil, func(t *testing.T, r *rig, stores []*luaredis.Server) { play(t, r, stores[0]) })
}

// bubbleOf is a bubble with a ring of stores, and more quotas of the campaign.
func bubbleOf(t *testing.T, stores int, q delivery.Quota, more []*delivery.Quota, play func(t *testing.T, r *rig, stores []*luaredis.Server)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)))
		var ring []*luaredis.Server
		var clients []redis.UniversalClient
		for range stores {
			s, client := luaredis.New()
			ring, clients = append(ring, s), append(clients, client)
		}
		r, stop := rigOn(t, shards.New(clients...), q, more)
		play(t, r, ring)
		time.Sleep(time.Second)
		stop()
	})
}

// TestAJobWithKeysInTwoShards, of which one does not answer: if the quota there is open, the job is sent and counted in the other shard.
func TestAJobWithKeysInTwoShards(t *testing.T) {
	tenants := unlimited(delivery.Quota{ID: "tenants", Per: "tenant", Windows: []delivery.Window{window(1, 24*time.Hour)}})
	q := unlimited(delivery.Quota{OnStoreFailure: delivery.PolicyOpen, Windows: []delivery.Window{window(1, time.Second)}})
	bubbleOf(t, 2, q, []*delivery.Quota{&tenants}, func(t *testing.T, r *rig, stores []*luaredis.Server) {
		in := func(shard int, quota, name string) string {
			for i := 0; ; i++ {
				if value := name + strconv.Itoa(i); idOf(quota, value).shard(2) == shard {
					return value
				}
			}
		}
		of := func(tenant string) *delivery.Job {
			j := job(in(0, "cap", "to"))
			j.Headers = append(j.Headers, delivery.Header{Key: delivery.HeaderKey + "tenant", Value: []byte(tenant)})
			return j
		}
		stores[0].Do(func() { stores[0].Lasts, stores[0].Lose = batchTimeout, 1_000_000 })
		tenant := in(1, "tenants", "t")
		for begun := time.Now(); r.send(of(tenant)).Class != delivery.Delivered; time.Sleep(100 * time.Millisecond) {
			if time.Since(begun) > 5*time.Second {
				t.Error("the job is not sent")
				return
			}
		}
		if res := r.send(of(tenant)); res.Class == delivery.Delivered {
			t.Error("a second job of the tenant is sent within its day")
		}
		if res := r.send(of(in(1, "tenants", "u"))); res.Class != delivery.Delivered {
			t.Errorf("a job of another tenant: %+v", res)
		}
	})
}

// TestAReplyIsLost of a take that has counted a job. The job is not sent, and is asked about again.
func TestAReplyIsLost(t *testing.T) {
	for _, most := range []time.Duration{0, -1} {
		q := delivery.Quota{Windows: []delivery.Window{window(1, 24*time.Hour)}}
		q.MaxWait = most
		bubble(t, q, func(t *testing.T, r *rig, s *luaredis.Server) {
			s.Do(func() { s.Lose = 1 })
			j := job("a")
			first := r.send(j)
			time.Sleep(first.RetryAfter)
			if again := r.send(j); again.Class != delivery.Delivered {
				t.Errorf("max_wait %s: first told %q in %s, then: capped by %q, %q in %s; %d were sent to the key in its day",
					most, first.Reason, first.RetryAfter, again.Detail, again.Reason, again.RetryAfter, r.count("a"))
			}
		})
	}
}

// reserved has these jobs reserve turns, and returns how long each is to wait.
func (r *rig) reserved(jobs ...*delivery.Job) (waits []time.Duration) {
	r.reserve(jobs...)
	for _, j := range jobs {
		wait := time.Duration(0)
		if !j.Due.IsZero() {
			wait = time.Until(j.Due)
		}
		waits = append(waits, wait)
	}
	return waits
}

// TestAJobThatMayNotWait does not, not even for a moment.
func TestAJobThatMayNotWait(t *testing.T) {
	bubble(t, delivery.Quota{Windows: []delivery.Window{window(1, time.Second)}}, func(t *testing.T, r *rig, _ *luaredis.Server) {
		r.send(job("a"))
		time.Sleep(800 * time.Millisecond)
		if res := r.send(job("a")); res.Class == delivery.Delivered || res.Detail != "cap" {
			t.Errorf("%+v", res)
		}
	})
}

// TestADaemonsClockIsAhead of that of Redis: at midnight a key's limit holds for the difference.
func TestADaemonsClockIsAhead(t *testing.T) {
	q := unlimited(delivery.Quota{Windows: []delivery.Window{{Limit: 1, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@UTC"}}})
	bubble(t, q, func(t *testing.T, r *rig, s *luaredis.Server) {
		s.Do(func() { s.Off = -300 * time.Millisecond }) // Redis is behind
		if r.send(job("a")).Class != delivery.Delivered || r.send(job("a")).Class == delivery.Delivered {
			t.Fatal("at noon")
		}
		time.Sleep(12*time.Hour - time.Until(time.Now())) // midnight by the daemon
		sent := 0
		for range 25 { // in a fourth of a second: Redis still has the day before
			j := job("a")
			if r.send(j).Class == delivery.Delivered {
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if sent > 1 {
			t.Errorf("%d jobs of one key in a fourth of a second, limit 1 a day", sent)
		}
	})
}

// TestAReleaseForgetsNoDay: whoever releases a key by hand does not know its recipient's zone. Its day, which is that of UTC no more, is counted on.
func TestAReleaseForgetsNoDay(t *testing.T) {
	day := delivery.Window{Limit: 1, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@recipient"}
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{day}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
		zone, err := time.LoadLocation("Asia/Vladivostok") // where it is 22:00
		if err != nil {
			t.Error(err)
		}
		sends := func() bool {
			j := job("a")
			j.Zone = zone
			return r.send(j).Class == delivery.Delivered
		}
		time.Sleep(3 * time.Hour)
		if !sends() || sends() {
			t.Error("the first day")
		}
		time.Sleep(10 * time.Hour) // in which the day of UTC ends
		if err := r.Desk.Release(context.Background(), r.quota, "a"); err != nil || sends() {
			t.Errorf("%v; a second job within the recipient's day", err)
		}
		time.Sleep(14 * time.Hour)
		if !sends() {
			t.Error("the next day")
		}
	})
}

// TestWhatIsCountedBeforeMidnight is sent before midnight.
func TestWhatIsCountedBeforeMidnight(t *testing.T) {
	q := unlimited(delivery.Quota{Windows: []delivery.Window{{Limit: 1, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@UTC"}}})
	bubble(t, q, func(t *testing.T, r *rig, _ *luaredis.Server) {
		midnight := time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)
		for _, before := range []time.Duration{time.Second, 10 * time.Millisecond} {
			time.Sleep(time.Until(midnight.Add(-before)))
			j := job(before.String())
			if a := r.asked(j); a.SendBy == 0 || a.SendBy.Time().After(midnight) {
				t.Errorf("what is counted %s before may be sent until %s", before, a.SendBy.Time())
			}
			r.Checker.Release(j)
		}
	})
}

// TestTheStoresClockWasAhead for a moment: what it counted then is of the time at which it is seen.
func TestTheStoresClockWasAhead(t *testing.T) {
	testservices.Simulation(t)
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(20, time.Minute)}}), func(t *testing.T, r *rig, s *luaredis.Server) {
		s.Do(func() { s.Off = 24 * time.Hour })
		for range 20 {
			r.send(job("a"))
		}
		s.Do(func() { s.Off = 0 })
		j := job("a")
		wait := r.send(j).RetryAfter
		time.Sleep(wait)
		j.Turned = true
		if res := r.send(j); wait > time.Minute+time.Second || res.Class != delivery.Delivered {
			t.Errorf("after %s, limit 20 a minute: %+v", wait, res)
		}
	})
}

// TestAClosedQuotaWaits for a span after a replica took over that has not heard of the last writes (another process, the same epoch), or after the
// store's clock jumped ahead for good by more than the span, which gives the data another epoch.
func TestAClosedQuotaWaits(t *testing.T) {
	testservices.Simulation(t)
	adopt := func(r *rig, s *luaredis.Server, epoch byte) {
		clock := string(append(make([]byte, 14), epoch, 0, 0, 0, 0, 0, 0)) + s.RunID
		s.Do(func() { s.Values[shards.Tag("pacer.", 0)+shards.ClockKey] = clock })
		r.epoch.Store(int64(epoch))
	}
	var replica map[string]string
	for name, lose := range map[string]func(r *rig, s *luaredis.Server){
		"a replica": func(_ *rig, s *luaredis.Server) {
			s.Do(func() { s.Values, s.RunID = replica, "bbbb" })
			time.Sleep(100 * time.Millisecond)
		},
		"a clock": func(r *rig, s *luaredis.Server) {
			s.Do(func() { s.Off = 2 * time.Hour })
			adopt(r, s, 8) // as package limits does, within a second or two
		},
	} {
		q := unlimited(delivery.Quota{OnStoreFailure: delivery.PolicyClosed, Windows: []delivery.Window{window(1, time.Hour)}})
		bubble(t, q, func(t *testing.T, r *rig, s *luaredis.Server) {
			adopt(r, s, 7)
			s.Do(func() { replica = maps.Clone(s.Values) })
			if r.send(job("a")).Class != delivery.Delivered {
				t.Fatal("the first")
			}
			lose(r, s)
			if r.send(job("a")).Class == delivery.Delivered {
				t.Errorf("%s: %d jobs in an hour, limit 1, policy closed", name, r.count("a"))
			}
		})
	}
}

// TestTheStoreIsFar: jobs of long windows are sent all the same. A line says why those of short windows are not, though others are sent meanwhile. One
// pause of the store is no reason for it.
func TestTheStoreIsFar(t *testing.T) {
	testservices.Simulation(t)
	var log strings.Builder
	bubble(t, unlimited(delivery.Quota{}), func(t *testing.T, r *rig, s *luaredis.Server) {
		r.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		sent := func(span time.Duration, i int) int {
			r.quota.Windows = []delivery.Window{window(1, span)}
			if r.send(job(strconv.Itoa(i))).Class == delivery.Delivered {
				return 1
			}
			return 0
		}
		s.Do(func() { s.Lasts = 100 * time.Millisecond })
		short, long := 0, 0
		for i := range lateInARow + 10 {
			if i == lateInARow/2 && log.Len() > 0 {
				t.Error("said of one pause:", log.String())
			}
			if short += sent(time.Second, i); i%100 == 0 {
				long += sent(time.Minute, i)
			}
		}
		if said := strings.Count(log.String(), "too late"); short > 0 || long != 11 || said != 1 {
			t.Errorf("%d of short windows and %d of 11 of long ones are sent, %d lines", short, long, said)
		}
		s.Do(func() { s.Lasts = 0 })
		time.Sleep(time.Second) // what is given back is under way
		if sent(time.Second, -1) != 1 || r.slow.Failures() > 0 {
			t.Error("a store that is near again counts as far")
		}
	})
}

// TestAReturnIsLost: a counted job is not sent, and Redis does not answer just when its unit is handed back.
func TestAReturnIsLost(t *testing.T) {
	bubble(t, delivery.Quota{Windows: []delivery.Window{window(1, 24*time.Hour)}}, func(t *testing.T, r *rig, s *luaredis.Server) {
		j := job("a")
		if r.asked(j).SendBy == 0 {
			t.Fatal("it is not counted")
		}
		var down map[string]string
		s.Do(func() { down = s.Values })
		s.Do(func() { s.Values = nil }) // any script fails
		r.Checker.Release(j)
		time.Sleep(time.Second)
		s.Do(func() { s.Values = down })
		time.Sleep(5 * time.Second)
		for range 3 { // the first ones may show that Redis answers again
			r.send(job("other"))
		}
		if again := r.send(j); again.Class != delivery.Delivered {
			t.Errorf("capped by %q for %s; %d were sent to the key", again.Detail, again.RetryAfter, r.count("a"))
		}
	})
}

// TestABatchIsUnsureForAnHour: after a longer outage nothing is asked for it any more.
func TestABatchIsUnsureForAnHour(t *testing.T) {
	s := &shard{unsure: []*check{{asked: time.Now().Add(-answersKept - time.Minute)}}}
	if back, err := s.settle(); len(back) > 0 || err != nil || s.unsure != nil {
		t.Errorf("%v, %v, and %d checks are unsure", back, err, len(s.unsure))
	}
}

// TestWindowsThatWereRemoved leave a key that is in use.
func TestWindowsThatWereRemoved(t *testing.T) {
	testservices.Simulation(t)
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1000, time.Second)}}), func(t *testing.T, r *rig, s *luaredis.Server) {
		for i := range 10 {
			r.quota.Windows = []delivery.Window{window(1000, time.Duration(i+1)*time.Second)}
			for range 10 {
				r.send(job("a"))
				time.Sleep(40 * time.Millisecond)
			}
			time.Sleep(time.Duration(i+1) * time.Second)
		}
		if r.send(job("a")); s.Packed > 20 {
			t.Errorf("the key holds %d numbers, for one unit in one window", s.Packed)
		}
	})
}

// TestEmptyFieldsOfAHashAreDropped while others of it are in use, which keep the hash.
func TestEmptyFieldsOfAHashAreDropped(t *testing.T) {
	bubble(t, delivery.Quota{}, func(t *testing.T, r *rig, s *luaredis.Server) {
		for i := range 300 {
			ask := shards.Run{Keys: []string{"h", "clock", "answers"}, Args: []any{fmt.Sprint(i), asked(take, 1, true, "1,1000,0,0,"), forever, 0, 0, 0}}
			must(t, script.Run(t.Context(), r.redis, ask).Err())
			time.Sleep(30 * time.Millisecond)
		}
		if n := len(s.Values); n > 100 { // of two seconds, and those since the last look
			t.Errorf("%d fields are kept", n)
		}
	})
}
