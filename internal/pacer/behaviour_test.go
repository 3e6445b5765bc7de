package pacer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// one is a fleet of a single daemon in a bubble.
func one(t *testing.T, b *book, adjust func(*Options), play func(t *testing.T, f *fleet)) {
	t.Helper()
	several(t, 1, b, adjust, play)
}

// several is a fleet of some daemons in a bubble.
func several(t *testing.T, daemons int, b *book, adjust func(*Options), play func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(daemons, uniform(3, 500*time.Microsecond, 0), b, adjust)
		defer f.stop()
		play(t, f)
	})
}

// within expects what is said of a number: from least to most.
func within[T cmp.Ordered](t testing.TB, got, least, most T, what string, args ...any) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", fmt.Sprintf(what, args...), got, least, most)
	}
}

func exactly[T comparable](t testing.TB, got, want T, what string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

// must is exactly for what the rest of a test builds on.
func must[T comparable](t testing.TB, got, want T, what string) {
	t.Helper()
	exactly(t, got, want, "%s", what)
	if got != want {
		t.FailNow()
	}
}

func atLeast[T cmp.Ordered](t testing.TB, got, least T, what string, args ...any) {
	t.Helper()
	if got < least {
		t.Errorf("%s: %v, want at least %v", fmt.Sprintf(what, args...), got, least)
	}
}

func atMost[T cmp.Ordered](t testing.TB, got, most T, what string, args ...any) {
	t.Helper()
	if got > most {
		t.Errorf("%s: %v, want at most %v", fmt.Sprintf(what, args...), got, most)
	}
}

func (f *fleet) offer(t *testing.T, list []*delivery.Job) (refused int) {
	t.Helper()
	return f.offerTo(t, 0, list)
}

func (f *fleet) offerTo(t *testing.T, daemon int, list []*delivery.Job) (refused int) {
	t.Helper()
	r, err := f.daemons[daemon].Offer(context.Background(), list)
	if err != nil {
		t.Fatalf("offer: %v", err)
	}
	return len(r)
}

// newPartition is a partition with a name of its own.
func (f *fleet) newPartition(from delivery.Place) *partition {
	f.partitions++
	name := map[delivery.Place]string{delivery.FromIngress: "in", delivery.FromLane: "lane", delivery.FromTimer: "timer"}[from]
	return newPartition(fmt.Sprintf("%s/%d", name, f.partitions-1))
}

// offered is a partition whose n jobs of a campaign were offered to the first daemon.
func (f *fleet) offered(t *testing.T, from delivery.Place, campaign string, n int) *partition {
	t.Helper()
	p := f.newPartition(from)
	f.offer(t, jobs(p, from, campaign, 0, n))
	return p
}

// pushed is the same for as many as there is no room for at once, which may name destinations.
func (f *fleet) pushed(t *testing.T, from delivery.Place, campaign string, n int, destinations ...string) *partition {
	t.Helper()
	p := f.newPartition(from)
	list := jobs(p, from, campaign, 0, n)
	if len(destinations) > 0 {
		named(list, destinations...)
	}
	f.push(t, list)
	return p
}

// refuses offers jobs, expects n of them to be refused, and returns those.
func (f *fleet) refuses(t *testing.T, n int, list []*delivery.Job) []*delivery.Job {
	t.Helper()
	refused, err := f.daemons[0].Offer(t.Context(), list)
	if err != nil || len(refused) != n {
		t.Fatalf("%d of %d refused, want %d: %v", len(refused), len(list), n, err)
	}
	return refused
}

// revoke takes partitions away from the first daemon, and waits until what was in flight has come back.
func (f *fleet) revoke(t *testing.T, partitions ...*partition) {
	t.Helper()
	for _, p := range partitions {
		p.revoke()
	}
	if err := f.daemons[0].Revoke(t.Context()); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Second)
}

func (f *fleet) troubles(t *testing.T) []delivery.Trouble {
	t.Helper()
	list, err := f.daemons[0].Troubles(t.Context())
	if err != nil {
		t.Error(err)
	}
	return list
}

func (f *fleet) count(campaign string) int {
	return len(sorted(f.receiver.history(), campaign))
}

func campaign(id string, perSecond int64) delivery.Campaign {
	return delivery.Campaign{ID: id, Rate: delivery.PerSecond(perSecond)}
}

// as is a campaign with another status.
func as(status delivery.Status, c delivery.Campaign) delivery.Campaign {
	c.Status = status
	return c
}

// always has every call answered alike.
func always(r delivery.Result) func(int, *delivery.Job) delivery.Result {
	return func(int, *delivery.Job) delivery.Result { return r }
}

// answering has some jobs answered with r, and the others taken.
func answering(r delivery.Result, some func(*delivery.Job) bool) func(int, *delivery.Job) delivery.Result {
	return func(_ int, j *delivery.Job) delivery.Result {
		if some(j) {
			return r
		}
		return delivery.Result{Class: delivery.Delivered}
	}
}

func TestJobsThatCannotBeDelivered(t *testing.T) {
	past := func() time.Time { return time.Now().Add(-365 * 24 * time.Hour) }
	quota := &delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Second, Limit: 5}}}
	b := func() *book {
		return newBook(campaign("c", 100),
			delivery.Campaign{ID: "over", Status: delivery.StatusCompleted, Rate: delivery.PerSecond(1)},
			delivery.Campaign{ID: "off", Status: delivery.StatusCancelled, Rate: delivery.PerSecond(1)},
			delivery.Campaign{ID: "narrow", Rate: delivery.PerSecond(1), Quotas: []*delivery.Quota{quota}},
			delivery.Campaign{ID: "old", Rate: delivery.PerSecond(1), TTL: time.Hour})
	}
	for _, tc := range []struct {
		name   string
		change func(j *delivery.Job)
		kind   delivery.RerouteKind
		reason delivery.Reason // "": it is settled as cancelled
	}{
		{"undecodable", func(j *delivery.Job) { j.Flaw = &delivery.Flaw{Defect: delivery.ReasonUndecodable} }, delivery.ToDead, delivery.ReasonUndecodable},
		{"expired", func(j *delivery.Job) { j.ExpiresAt = past() }, delivery.ToDead, delivery.ReasonExpired},
		{"past the campaign's ttl", func(j *delivery.Job) { j.Campaign, j.FirstRead = "old", past() }, delivery.ToDead, delivery.ReasonExpired},
		{"completed campaign", func(j *delivery.Job) { j.Campaign = "over" }, delivery.ToDead, delivery.ReasonExpired},
		{"cancelled campaign", func(j *delivery.Job) { j.Campaign = "off" }, 0, ""},
		{"overweight", func(j *delivery.Job) { j.Weight = 1001 }, delivery.ToDead, delivery.ReasonOverweight},
		{"heavier than a window", func(j *delivery.Job) { j.Campaign, j.Weight = "narrow", 6 }, delivery.ToDead, delivery.ReasonOverweight},
		{"unknown campaign, new", func(j *delivery.Job) { j.Campaign = "nobody" }, delivery.ToTimer, delivery.ReasonUnknownCampaign},
		{"unknown, past the grace", func(j *delivery.Job) { j.Campaign, j.FirstRead = "nobody", past() }, delivery.ToDead, delivery.ReasonUnknownCampaign},
		{"due in an hour", func(j *delivery.Job) { j.NotBefore = time.Now().Add(time.Hour) }, delivery.ToTimer, delivery.ReasonNotBefore},
	} {
		t.Run(tc.name, func(t *testing.T) {
			one(t, b(), nil, func(t *testing.T, f *fleet) {
				time.Sleep(11 * time.Minute) // no campaign is known to be absent before
				f.book.reload()
				time.Sleep(time.Second)
				src := newPartition("in/0")
				list := jobs(src, delivery.FromIngress, "c", 0, 1)
				tc.change(list[0])
				f.offer(t, list)
				all, expires := f.outboxes[0].all(), list[0].ExpiresAt
				if list[0].Campaign == "old" && !expires.IsZero() { // the ttl acts as it is now, and begins anew with a replay
					t.Errorf("the job is said to expire at %s itself", expires)
				}
				if tc.reason != "" && (len(all) != 1 || all[0].Kind != tc.kind || all[0].Reason != tc.reason) {
					t.Errorf("not put where it belongs: %+v", all)
				}
				if tc.reason == "" {
					exactly(t, src.count(delivery.OutcomeCancelled), 1, "settled as cancelled")
				}
			})
		})
	}
}

// The letter of a job that is too heavy names the limit and its value.
func TestWhichLimitAJobIsTooHeavyFor(t *testing.T) {
	window := func(span time.Duration, limit int64) delivery.Window {
		return delivery.Window{Span: span, Limit: limit}
	}
	quotas := []*delivery.Quota{
		{ID: "wide", Windows: []delivery.Window{window(time.Hour, 900), window(time.Minute, 0)}},
		{ID: "wq", Windows: []delivery.Window{window(time.Minute, 80), window(10*time.Second, 50)}},
		{ID: "shadow", Mode: delivery.ModeShadow, Windows: []delivery.Window{window(time.Second, 1)}},
	}
	for _, tc := range []struct {
		weight int64
		quotas []*delivery.Quota
		want   string
	}{
		{60, quotas, "its weight 60 is above the limit 50/10s of quota wq"},
		{1001, quotas, "its weight 1001 is above max_weight 1000"},
		{1001, nil, "its weight 1001 is above max_weight 1000"},
		{901, quotas[:1], "its weight 901 is above the limit 900/1h of quota wide"},
	} {
		exactly(t, overweight(tc.weight, 1000, &delivery.Campaign{ID: "c", Quotas: tc.quotas}), tc.want, "%d", tc.weight)
	}
	want := "the most that is granted at once"
	if got := overweight(delivery.MaxGrant+1, delivery.MaxGrant+2, &delivery.Campaign{}); !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestOverflowGoesToTheLaneOnce(t *testing.T) {
	one(t, newBook(campaign("slow", 1), campaign("fast", 1000)), nil, func(t *testing.T, f *fleet) {
		src := f.offered(t, delivery.FromIngress, "slow", 500)
		f.offer(t, jobs(src, delivery.FromIngress, "fast", 500, 3000))
		time.Sleep(8 * time.Second)
		exactly(t, f.count("fast"), 3000, "fast: sent behind the slow one")
		direct, laned := src.count(delivery.OutcomeDelivered)-3000, src.count(delivery.OutcomeRequeued)
		if direct+laned != 500 || direct < 4 || direct > 8 || src.counts().twice > 0 {
			t.Errorf("slow: %d sent, %d put into the lane, %d settled twice", direct, laned, src.counts().twice)
		}
	})
}

// TestNewJobsGoBehindTheBacklog until no more than a second's worth has waited in the lanes for ten seconds; only those of high priority pass it.
// Those that went there because of the backlog are no reason for the next to follow them, or a campaign with a steady trickle of jobs would never
// leave its lanes.
func TestNewJobsGoBehindTheBacklog(t *testing.T) {
	b := newBook(campaign("c", 100))
	b.setBacklog("c", 101)
	one(t, b, nil, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, 10)
		list[4].Priority = delivery.PriorityHigh
		f.offer(t, list)
		b.setBacklog("c", 100)
		time.Sleep(drainedFor - time.Second)
		exactly(t, f.count("c"), 1, "sent: the high-priority job passes the backlog")
		f.offer(t, jobs(src, delivery.FromIngress, "c", 10, 10))
		exactly(t, src.count(delivery.OutcomeRequeued), 19, "went to the lane")
		time.Sleep(1100 * time.Millisecond)
		f.offer(t, jobs(src, delivery.FromIngress, "c", 20, 10))
		time.Sleep(time.Second)
		exactly(t, src.count(delivery.OutcomeRequeued), 19, "went to the lane")
		exactly(t, f.count("c"), 11, "sent at once")
	})
}

func TestPauseResumeCancel(t *testing.T) {
	one(t, newBook(campaign("c", 100), campaign("other", 200)), nil, func(t *testing.T, f *fleet) {
		in, lane, other := newPartition("in/0"), newPartition("lane/0"), newPartition("in/1")
		f.offer(t, jobs(in, delivery.FromIngress, "c", 0, 100))
		f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 100))
		f.offer(t, jobs(other, delivery.FromIngress, "other", 0, 900))
		time.Sleep(500 * time.Millisecond)
		f.book.set(as(delivery.StatusPaused, campaign("c", 100)))
		time.Sleep(100 * time.Millisecond)
		n := f.count("c")
		within(t, n, 40, 52, "sent in half a second at 100/s")
		time.Sleep(2 * time.Second)
		exactly(t, f.count("c"), n, "sent while paused")
		exactly(t, in.count(delivery.OutcomeRequeued), 100-n, "paused: to the lane")
		exactly(t, lane.counts().released, 100, "paused: released")
		exactly(t, f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 10)), 10, "refused: a paused campaign takes none from its lane")
		f.book.set(campaign("c", 100))
		time.Sleep(50 * time.Millisecond)
		atLeast(t, lane.counts().rooms, 1, "times the lane is told of the resume")
		f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 100))
		time.Sleep(300 * time.Millisecond)
		atLeast(t, f.count("c")-n, 25, "sent in 300 ms after the resume")
		f.book.set(as(delivery.StatusCancelled, campaign("c", 100)))
		time.Sleep(100 * time.Millisecond)
		n = f.count("c")
		time.Sleep(time.Second)
		if f.count("c") != n || lane.count(delivery.OutcomeCancelled)+lane.count(delivery.OutcomeDelivered) != 100 {
			t.Errorf("cancelled: %d more sent, settled %d", f.count("c")-n, lane.counts().settled)
		}
		time.Sleep(time.Second)
		exactly(t, f.count("other"), 900, "sent by the other campaign")
	})
}

func TestRoomIsAnnouncedAtHalf(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		lane := newPartition("lane/0")
		must(t, f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 300)), 100, "refused")
		time.Sleep(900 * time.Millisecond)
		exactly(t, lane.counts().rooms, 0, "times announced before half was sent")
		time.Sleep(300 * time.Millisecond)
		exactly(t, lane.counts().rooms, 1, "times announced")
	})
}

// script answers the n-th call of each job.
func script(answers ...delivery.Result) func(int, *delivery.Job) delivery.Result {
	calls := map[string]int{}
	return func(_ int, j *delivery.Job) delivery.Result {
		n := calls[j.ID]
		calls[j.ID]++
		if n < len(answers) {
			return answers[n]
		}
		return delivery.Result{Class: delivery.Delivered}
	}
}

func TestRetries(t *testing.T) {
	quick := func(o *Options) { o.Retry.Initial, o.Retry.MaxAttempts = 100*time.Millisecond, 3 }
	temporary := delivery.Result{Class: delivery.Temporary, Status: 500, Detail: "500"}
	refused := delivery.Result{Class: delivery.Permanent, Status: 400}
	for name, tc := range map[string]struct {
		adjust  func(*Options)
		answers []delivery.Result // before a delivery
		outcome delivery.Outcome
		reason  delivery.Reason // of what is written elsewhere
		calls   int
	}{
		"delivered after a back-off": {quick, []delivery.Result{temporary, temporary}, delivery.OutcomeDelivered, "", 3},
		"attempts run out":           {quick, slices.Repeat([]delivery.Result{temporary}, 3), delivery.OutcomeDead, delivery.ReasonAttemptsExhausted, 3},
		"a long back-off":            {nil, []delivery.Result{temporary}, delivery.OutcomeRetried, delivery.ReasonRetry, 1},
		"refused":                    {nil, []delivery.Result{refused}, delivery.OutcomeDead, delivery.ReasonRefused, 1},
	} {
		t.Run(name, func(t *testing.T) {
			one(t, newBook(campaign("c", 100)), tc.adjust, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(script(tc.answers...))
				src := f.offered(t, delivery.FromIngress, "c", 1)
				time.Sleep(6 * time.Second)
				exactly(t, src.count(tc.outcome), 1, "settled as %s", tc.outcome)
				for _, to := range f.outboxes[0].all() {
					exactly(t, to.Reason, tc.reason, "reason")
				}
				sent := f.receiver.history()
				exactly(t, len(sent), tc.calls, "calls")
				exactly(t, sent[len(sent)-1].attempt, tc.calls-1, "attempts before the last call")
				if tc.calls > 1 {
					within(t, sent[1].at-sent[0].at, 80_000, 170_000, "us of back-off")
				}
			})
		})
	}
}

// TestRevokeOfAll: what is in flight is settled, and the rest is given back, also what waits for its destination.
func TestRevokeOfAll(t *testing.T) {
	one(t, newBook(campaign("c", 100)), withShops(&shops{limit: map[string]int{"small": 1}}), func(t *testing.T, f *fleet) {
		f.receiver.setLatency(700 * time.Millisecond)
		src := f.pushed(t, delivery.FromIngress, "c", 300, "a", "a", "a", "small")
		time.Sleep(time.Second)
		f.revoke(t, src)
		n := f.count("c")
		if is := src.counts().settled; n == 0 || src.count(delivery.OutcomeDelivered) != n || is+src.counts().released != 300 {
			t.Errorf("%d sent, %d settled, %d given back", n, is, src.counts().released)
		}
		time.Sleep(2 * time.Second)
		exactly(t, f.count("c"), n, "sent after that")
		f.offer(t, jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 10))
		time.Sleep(2 * time.Second)
		exactly(t, f.count("c"), n+10, "sent, as it goes on")
	})
}

// Jobs that belong to other daemons by now are not sent, whether they wait or are offered. They are given back, so that no one waits for them. Once
// their partitions are revoked, others are sent.
func TestJobsOfOthersAreNotSent(t *testing.T) {
	var lost atomic.Bool
	owns := func(o *Options) { o.Owns = func(time.Time) bool { return !lost.Load() } }
	one(t, newBook(campaign("c", 100)), owns, func(t *testing.T, f *fleet) {
		f.receiver.setLatency(700 * time.Millisecond)
		src := f.offered(t, delivery.FromIngress, "c", 300)
		time.Sleep(time.Second)
		n := f.count("c")
		lost.Store(true)
		if _, err := f.daemons[0].Offer(t.Context(), jobs(src, delivery.FromIngress, "c", 300, 10)); err == nil {
			t.Error("jobs of others are accepted")
		}
		time.Sleep(2 * time.Second)
		if more := f.count("c") - n; n == 0 || more > 0 {
			t.Errorf("%d sent, then %d of others", n, more)
		}
		exactly(t, src.count(delivery.OutcomeDelivered), n, "in flight were settled")
		exactly(t, src.counts().released, 300-n, "given back")
		f.revoke(t, src)
		lost.Store(false)
		f.offer(t, jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 10))
		time.Sleep(2 * time.Second)
		exactly(t, f.count("c")-n, 10, "sent of others after that")
	})
}

// TestNoStoreNothingIsSent: an outage of the store ends for the log though nothing is asked any more a second after it.
func TestNoStoreNothingIsSent(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.offered(t, delivery.FromLane, "c", 100)
		time.Sleep(500 * time.Millisecond)
		f.store.setDown(true)
		time.Sleep(100 * time.Millisecond)
		n := f.count("c")
		time.Sleep(10 * time.Second)
		exactly(t, f.count("c"), n, "sent without the store")
		atLeast(t, f.daemons[0].takes.outage.Failures(), 1, "takes that have failed")
		f.store.setDown(false)
		time.Sleep(2500 * time.Millisecond)
		exactly(t, f.count("c"), 100, "sent after it came back")
		exactly(t, f.daemons[0].takes.outage.Failures(), 0, "failures after an answer")
		keepsRate(t, sorted(f.receiver.history(), "c"), 100, 1)
	})
}

// TestWeights: a job of weight w uses w slots, and jobs of several units go at the rate of their units, also if keys are asked for them.
func TestWeights(t *testing.T) {
	play := func(t *testing.T, f *fleet) {
		list, units := jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 100), int64(0)
		for i, j := range list {
			j.Weight = int64(1 + i%7*i%5)
			units += j.Weight
		}
		atMost(t, f.offer(t, list), 0, "refused")
		time.Sleep(time.Duration(units)*time.Second/200 + 2*time.Second)
		sent := f.receiver.history()
		must(t, len(sent), len(list), "sent")
		within(t, sent[len(sent)-1].at-sent[0].at, units*5000-50_000, units*5100, "us for %d units at 200/s", units)
	}
	t.Run("without keys", func(t *testing.T) { one(t, newBook(campaign("c", 200)), nil, play) })
	t.Run("with keys", func(t *testing.T) { oneKeyed(t, keyedCampaign(200), &keys{takes: 8 * time.Millisecond}, play) })
}

// TestAFullSinkIsNoBurst: slots that passed while no call was free are lost, not made up for.
func TestAFullSinkIsNoBurst(t *testing.T) {
	one(t, newBook(campaign("c", 200)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 4
		f.receiver.setLatency(time.Second)
		f.offered(t, delivery.FromLane, "c", 400)
		time.Sleep(3 * time.Second)
		f.receiver.setLatency(time.Millisecond)
		time.Sleep(3 * time.Second)
		sent := sorted(f.receiver.history(), "c")
		keepsRate(t, sent, 200, 1+200/50)
		atLeast(t, len(sent), 350, "sent")
	})
}

// TestBurst: the credit of idle time goes at once, and no more than it, with keys as without.
func TestBurst(t *testing.T) {
	play := func(t *testing.T, f *fleet) {
		src := f.offered(t, delivery.FromLane, "c", 10)
		time.Sleep(2 * time.Second)
		f.offer(t, jobs(src, delivery.FromLane, "c", 10, 200))
		began := time.Since(f.receiver.began).Microseconds()
		time.Sleep(1100 * time.Millisecond)
		sent := f.receiver.history()
		atLeast(t, between(sent, began, began+100_000), 50, "in the first tenth of a second with a burst of 50")
		within(t, between(sent, began, began+1_000_000), 145, 151, "in the first second at 100/s with a burst of 50")
		time.Sleep(time.Second) // until all are sent
	}
	c := keyedCampaign(100)
	c.Burst = 50
	t.Run("with keys", func(t *testing.T) { oneKeyed(t, c, &keys{takes: 5 * time.Millisecond}, play) })
	c.Keyed = nil
	t.Run("without keys", func(t *testing.T) { one(t, newBook(c), nil, play) })
}

// TestAForfeitedSlotIsAskedForAgain: the last job of a queue, whose only slot passed while no call was free.
func TestAForfeitedSlotIsAskedForAgain(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 1
		f.receiver.setLatency(time.Second)
		f.offered(t, delivery.FromLane, "c", 2)
		time.Sleep(3 * time.Second)
		exactly(t, f.count("c"), 2, "sent")
	})
}

// TestAGateIsNotLeftClosed: failures and successes in one burst, over a store whose answers overtake one another.
func TestAGateIsNotLeftClosed(t *testing.T) {
	testservices.Simulation(t)
	for seed := range uint64(20) {
		one(t, newBook(campaign("c", 500)), impatient, func(t *testing.T, f *fleet) {
			f.store.latency = uniform(seed, 0, 20*time.Millisecond)
			f.receiver.setLatency(100 * time.Millisecond) // fifty in flight: successes come right behind the failures
			calls := 0
			f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result {
				if calls++; calls > 100 && calls <= 107 {
					return delivery.Result{Class: delivery.Unreachable}
				}
				return delivery.Result{Class: delivery.Delivered}
			})
			src := f.offered(t, delivery.FromLane, "c", 1000)
			time.Sleep(10 * time.Second)
			exactly(t, src.count(delivery.OutcomeDelivered), 1000, "seed %d: delivered in 10 s at 500/s", seed)
		})
	}
}
