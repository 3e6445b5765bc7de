package pacer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// ramp is a campaign that begins at start units a second and adds to that each second, up to its rate, from now on.
func ramp(id string, perSecond, start, add int64) delivery.Campaign {
	c := campaign(id, perSecond)
	c.Ramp = &delivery.Ramp{
		Start: start * 1_000_000, Add: add * 1_000_000, Per: time.Second, Every: time.Second, Since: time.Now(),
	}
	return c
}

// between is how many were sent from one time to another, microseconds since the receiver began.
func between(sent []arrival, from, to int64) (n int64) {
	for _, a := range sent {
		if a.at >= from && a.at < to {
			n++
		}
	}
	return n
}

// TestARampSteps: every step acts within 200 ms on every daemon, and no rolling second carries more than the largest
// rate in force, and 1.
func TestARampSteps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate, start := rapid.Int64Range(20, 1500).Draw(rt, "rate"), rapid.Int64Range(20, 300).Draw(rt, "start")
		add := rapid.Int64Range(20, 400).Draw(rt, "add")
		pl := plan{
			daemons: rapid.IntRange(1, 4).Draw(rt, "daemons"), length: 6 * time.Second,
			latency: time.Duration(rapid.IntRange(0, 3000).Draw(rt, "latency")) * time.Microsecond,
			ramp:    func() delivery.Campaign { return ramp("c", rate, start, add) },
		}
		for k := range int64(6) {
			pl.changes = append(pl.changes, change{k * 1_000_000, min(rate, start+k*add)})
		}
		if failure := pl.run(t); failure != "" {
			rt.Fatalf("%s\n%+v", failure, pl)
		}
	})
}

// TestAStepIsNewerThanWhatTheStoreKnows: a change of the row in the middle of a ramp acts, up and down.
func TestAStepIsNewerThanWhatTheStoreKnows(t *testing.T) {
	one(t, newBook(), nil, func(t *testing.T, f *fleet) {
		c := ramp("c", 1000, 50, 50)
		f.book.set(c)
		stop := f.feedAll("c")
		for _, second := range []struct{ ceiling, rate int64 }{{1000, 100}, {30, 30}, {500, 200}, {500, 250}} {
			time.Sleep(time.Until(c.Ramp.Since.Add(time.Since(c.Ramp.Since).Truncate(time.Second) + time.Second)))
			c.Rate = delivery.PerSecond(second.ceiling)
			f.book.set(c)
			begun := time.Since(f.receiver.began).Microseconds()
			time.Sleep(999 * time.Millisecond)
			got, want := between(f.receiver.history(), begun+200_000, begun+1_000_000), second.rate*8/10
			within(t, got, want-2, want+2, "sent in 0.8 s from %d us on", begun)
		}
		stop()
	})
}

// TestHoursCloseAndOpen: nothing is sent out of hours, every job waits in its lane, and goes when they open.
func TestHoursCloseAndOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(59*time.Second - 120*time.Millisecond) // the daemon's sweeps fall between the minutes
		closing := time.Now().Truncate(time.Minute).Add(time.Minute)
		opening, minute := closing.Add(time.Minute), closing.Hour()*60+closing.Minute()
		c := campaign("c", 100)
		c.Hours = localHours(t, minute+1, minute)
		f := newFleet(1, uniform(3, 500*time.Microsecond, 0), newBook(c), nil)
		defer f.stop()
		lane := f.offered(t, delivery.FromLane, "c", 200)
		since := func(at time.Time) int64 { return at.Sub(f.receiver.began).Microseconds() }

		time.Sleep(time.Until(closing.Add(50 * time.Second)))
		sent := sorted(f.receiver.history(), "c")
		atLeast(t, between(sent, since(closing.Add(-time.Second)), since(closing)), 98, "sent in the last second at 100/s")
		atMost(t, between(sent, since(closing), 1<<62), 1, "sent after the hours had closed")
		exactly(t, lane.counts().released, 200-len(sent), "given back to the lane")
		exactly(t, f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 10)), 10, "refused from the lane out of hours")

		time.Sleep(time.Until(opening.Add(20 * time.Millisecond)))
		atLeast(t, lane.counts().rooms, 1, "times the lane is told that the hours have opened")
		f.offer(t, jobs(lane, delivery.FromLane, "c", int64(len(sent)), 200-len(sent)))
		time.Sleep(3 * time.Second)
		exactly(t, lane.count(delivery.OutcomeDelivered), 200, "delivered in the end")
		after := between(f.receiver.history(), since(opening), since(opening.Add(220*time.Millisecond)))
		atLeast(t, after, 15, "sent in the 200 ms after the lane was heard")
	})
}

// TestStartAndEnd: nothing goes before the start; at the end, what waits expires.
func TestStartAndEnd(t *testing.T) {
	one(t, newBook(), nil, func(t *testing.T, f *fleet) {
		began := time.Now()
		c := campaign("c", 100)
		c.StartsAt, c.EndsAt = began.Add(1_130*time.Millisecond), began.Add(2_130*time.Millisecond)
		f.book.set(c)
		in, lane := newPartition("in/0"), newPartition("lane/0")
		f.offer(t, jobs(in, delivery.FromIngress, "c", 0, 5))
		exactly(t, f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 150)), 150, "refused before the start")
		time.Sleep(time.Until(c.StartsAt.Add(10 * time.Millisecond)))
		if lane.counts().rooms != 1 || in.count(delivery.OutcomeRequeued) != 5 || f.count("c") != 0 {
			t.Fatalf("at the start: %+v, %+v, %d sent", lane.counts(), in.counts(), f.count("c"))
		}
		f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 150))
		time.Sleep(time.Until(c.EndsAt.Add(10 * time.Millisecond)))
		sent := f.count("c")
		within(t, sent, 95, 101, "sent in a second at 100/s")
		exactly(t, lane.count(delivery.OutcomeExpired), 150-sent, "expired at the end")
		time.Sleep(time.Second)
		f.offer(t, jobs(in, delivery.FromIngress, "c", 5, 5))
		if f.count("c") != sent || in.count(delivery.OutcomeExpired) != 5 {
			t.Errorf("after the end: %d sent, %+v", f.count("c")-sent, in.counts())
		}
	})
}

// TestSchedulesAreForgotten: nothing is kept of a campaign that is deleted, nor of a schedule that is taken away.
func TestSchedulesAreForgotten(t *testing.T) {
	one(t, newBook(), nil, func(t *testing.T, f *fleet) {
		f.book.set(ramp("a", 1000, 1, 1))
		f.book.set(ramp("b", 1000, 1, 1))
		known := func() (campaigns, schedules int) {
			time.Sleep(time.Second)
			f.daemons[0].inbox.do(func(instant) {
				campaigns, schedules = len(f.daemons[0].campaigns.byID), f.daemons[0].campaigns.changes.len()
			})
			synctest.Wait()
			return campaigns, schedules
		}
		for _, id := range []string{"a", "b"} {
			f.offer(t, jobs(newPartition("lane/"+id), delivery.FromLane, id, 0, 10))
		}
		if c, s := known(); c != 2 || s != 2 {
			t.Errorf("%d campaigns, %d schedules", c, s)
		}
		f.book.remove("a")
		f.book.set(campaign("b", 1000))
		if c, s := known(); c != 1 || s != 0 {
			t.Errorf("%d campaigns and %d schedules are still known", c, s)
		}
		exactly(t, f.count("b"), 10, "sent")
	})
}

func localHours(t testing.TB, from, to int) *delivery.ActiveHours {
	t.Helper()
	h, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: from, To: to}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// showing is a zone whose clocks show a time of the day now.
func showing(hour, minute, second int) *time.Location {
	now := time.Now().UTC()
	ahead := 3600*(hour-now.Hour()) + 60*(minute-now.Minute()) + second - now.Second()
	return time.FixedZone(fmt.Sprintf("%02d:%02d:%02d", hour, minute, second), ahead)
}

// TestRecipientsHours: a job whose recipient's hours end while it waits in its queue is not sent and takes no slot from the others; it comes back
// when they begin. One whose hours begin soon waits here.
func TestRecipientsHours(t *testing.T) {
	c := campaign("c", 10)
	c.Local = localHours(t, 10*60, 20*60)
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		src, began := newPartition("in/0"), time.Now()
		list := jobs(src, delivery.FromIngress, "c", 0, 48)
		closing, opening, night, day := showing(19, 59, 57), showing(9, 59, 58), showing(23, 0, 0), showing(12, 0, 0)
		zones := slices.Concat(slices.Repeat([]*time.Location{closing}, 35), slices.Repeat([]*time.Location{day}, 10), []*time.Location{opening, night, nil})
		for i, j := range list {
			j.Zone = zones[i]
		}
		f.offer(t, list)
		time.Sleep(20 * time.Second)
		sent := map[*time.Location]int{}
		for i, id := range idsOf(list) {
			if slices.Contains(f.order("c"), id) {
				sent[zones[i]]++
			}
		}
		if sent[day] != 10 || sent[opening] != 1 || sent[night] != 0 || sent[nil] != 0 || sent[closing] < 25 || sent[closing] > 31 {
			t.Errorf("sent: %v", sent)
		}
		back := 0
		for _, p := range f.outboxes[0].puts {
			want, due := delivery.ReasonHours, 14*time.Hour+3*time.Second
			switch p.job.Zone {
			case closing:
				back++
			case night:
				due = 11 * time.Hour
			case nil:
				want, due = delivery.ReasonNoZone, time.Hour
			}
			if p.to.Kind != delivery.ToTimer || p.to.Reason != want || (p.to.Due.Sub(began)-due).Abs() > time.Second {
				t.Errorf("%s in %v: %+v, want %s for %s", p.job.ID, p.job.Zone, p.to, want, due)
			}
		}
		must(t, back, 35-sent[closing], "came to timers")
		// The hours are extended, and there is a zone for jobs without one, while they wait: those that are looked at now are sent.
		again := func(zone *time.Location, why delivery.Reason, n int) {
			list := jobs(newPartition("timer/"+string(why)), delivery.FromTimer, "c", 0, n)
			for _, j := range list {
				j.Zone, j.Reason, j.Due = zone, string(why), time.Now().Add(50*time.Minute)
			}
			f.offer(t, list)
		}
		again(nil, delivery.ReasonNoZone, 1)
		if to := f.outboxes[0].puts[len(f.outboxes[0].puts)-1].to; to.Reason != delivery.ReasonNoZone || time.Until(to.Due) != time.Hour {
			t.Errorf("a job without a zone, looked at again: %+v", to)
		}
		before := f.count("c")
		c.Local, c.Zone = localHours(t, 10*60, 22*60), day
		f.book.set(c)
		time.Sleep(time.Second)
		again(closing, delivery.ReasonHours, back)
		again(nil, delivery.ReasonNoZone, 1)
		time.Sleep(5 * time.Second)
		exactly(t, f.count("c")-before, back+1, "sent after a change of the hours")
	})
}
