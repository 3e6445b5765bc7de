package pacer

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// waited makes jobs that were first read long ago.
func waited(lane *partition, campaign string, first int64, n int) []*delivery.Job {
	list := jobs(lane, delivery.FromLane, campaign, first, n)
	for _, j := range list {
		j.FirstRead = time.Now().Add(-30 * time.Minute)
	}
	return list
}

// reload publishes the catalog as it is, read at this moment.
func (b *book) reload() {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := *b.snapshot
	same.LoadedAt = time.Now()
	b.snapshot = &same
}

// A row that is gone for a moment costs no job, however long the jobs have waited: those of lanes stay there.
func TestARowThatIsGoneForAMoment(t *testing.T) {
	one(t, newBook(campaign("c", 10)), nil, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour)
		lane := newPartition("lanes/0")
		refused := f.offer(t, waited(lane, "c", 0, 1000))
		time.Sleep(100 * time.Millisecond)
		f.book.remove("c")
		time.Sleep(200 * time.Millisecond)
		exactly(t, f.offer(t, waited(lane, "c", 5000, 100)), 100, "jobs of an unknown campaign stay in their lane")
		exactly(t, lane.counts().rooms, 0, "times asked for while the campaign is unknown")
		f.book.set(campaign("c", 10))
		time.Sleep(time.Second)
		c := lane.counts()
		exactly(t, len(f.outboxes[0].all()), 0, "jobs were moved")
		if c.rooms == 0 || c.released != 1000-refused-f.count("c") {
			t.Errorf("%+v after the row is back", c)
		}
	})
}

// Jobs of a campaign that stays away become dead letters after the grace, which begins when it disappears.
func TestARowThatStaysAway(t *testing.T) {
	one(t, newBook(campaign("c", 10)), nil, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour)
		lane := newPartition("lanes/0")
		f.book.remove("c")
		time.Sleep(time.Second)
		f.offer(t, waited(lane, "c", 0, 10))
		time.Sleep(9 * time.Minute)
		f.book.reload()
		time.Sleep(time.Second)
		exactly(t, lane.counts().rooms, 0, "times asked for within the grace")
		time.Sleep(time.Minute)
		f.book.reload()
		time.Sleep(time.Second)
		atLeast(t, lane.counts().rooms, 1, "times asked for after the grace")
		f.offer(t, waited(lane, "c", 0, 10))
		exactly(t, f.outboxes[0].count(delivery.ToDead, delivery.ReasonUnknownCampaign), 10, "dead letters")
	})
}

// A daemon that has just started does not know since when a campaign is gone.
func TestARowThatIsGoneAtTheStart(t *testing.T) {
	one(t, newBook(), nil, func(t *testing.T, f *fleet) {
		list := jobs(newPartition("timer/0"), delivery.FromTimer, "c", 0, 10)
		for _, j := range list {
			j.FirstRead = time.Now().Add(-time.Hour)
		}
		time.Sleep(time.Second)
		f.book.reload()
		time.Sleep(time.Second)
		f.offer(t, list)
		exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonUnknownCampaign), 10, "wait in a timer")
	})
}

// An empty catalog stops nothing until it is seen again after the grace; a row that is there acts at once.
func TestACatalogThatHasLostMostCampaigns(t *testing.T) {
	var log lines
	var list []delivery.Campaign
	for i := range 5 {
		list = append(list, campaign(fmt.Sprint("c", i), 1))
	}
	one(t, newBook(list...), log.logged, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour)
		f.book.mu.Lock()
		f.book.snapshot = &delivery.Snapshot{LoadedAt: time.Now(), Campaigns: map[string]*delivery.Campaign{}}
		f.book.mu.Unlock()
		time.Sleep(time.Second)
		lane := f.offered(t, delivery.FromLane, "c0", 10)
		f.offer(t, jobs(lane, delivery.FromLane, "c1", 100, 10))
		f.book.set(as(delivery.StatusPaused, campaign("c1", 1)))
		time.Sleep(15 * time.Second)
		exactly(t, f.count("c0"), 10, "sent of a campaign that was lost")
		atMost(t, f.count("c1"), 1, "sent of one that is paused")
		log.says(t, "level=ERROR", 1)
		time.Sleep(10 * time.Minute)
		f.book.reload()
		time.Sleep(time.Second)
		if n := f.offer(t, jobs(lane, delivery.FromLane, "c0", 10, 10)); n != 10 || f.count("c0") != 10 {
			t.Errorf("%d of 10 stay in the lane after the grace", n)
		}
	})
}

// Jobs whose destination is not known wait for it in timers, and are sent once it is there. If it stays away, they become dead letters
// after the grace, which does not begin before they look for it, however old they are. The other jobs of the campaign pass them.
func TestADestinationThatIsNotKnown(t *testing.T) {
	var known atomic.Bool
	missing := func(_ string, j *delivery.Job) string {
		if j.Destination == "shop" && !known.Load() {
			return "create it"
		}
		return ""
	}
	one(t, newBook(campaign("c", 100)), func(o *Options) { o.Missing = missing }, func(t *testing.T, f *fleet) {
		time.Sleep(time.Hour)
		named := func(first int64, old bool) []*delivery.Job {
			list := jobs(newPartition("jobs/0"), delivery.FromIngress, "c", first, 10)
			for i, j := range list {
				if i%2 == 0 {
					j.Destination = "shop"
				}
				if j.FirstRead = time.Now(); old {
					j.FirstRead = time.Now().Add(-30 * time.Minute)
				}
			}
			return list
		}
		back := func(list []*delivery.Job) []*delivery.Job { // from a timer
			for _, j := range list {
				j.From, j.Reason = delivery.FromTimer, string(delivery.ReasonUnknownDestination)
			}
			return list
		}
		f.offer(t, named(0, true))
		time.Sleep(time.Second)
		waits := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonUnknownDestination)
		exactly(t, f.count("c"), 5, "sent")
		exactly(t, waits, 5, "in timers")
		f.offer(t, named(20, true))
		time.Sleep(time.Second)
		waits += 5
		exactly(t, fmt.Sprint(f.troubles(t)), fmt.Sprint([]delivery.Trouble{{Campaign: "c", Destination: "shop"}}), "what keeps the campaign's jobs")
		time.Sleep(9 * time.Minute)
		f.book.reload()
		time.Sleep(time.Second)
		hop := back(named(50, true))[:1] // read from the first of two timers
		hop[0].Due = time.Now().Add(5 * time.Minute)
		f.offer(t, append(hop, named(100, true)...))
		time.Sleep(time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToDead, delivery.ReasonUnknownDestination), 0, "dead letters within the grace")
		waiting := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonUnknownDestination)
		exactly(t, waiting, waits+1+5, "wait for the destination; between two timers a job must not wait for something else")
		time.Sleep(2 * time.Minute)
		f.book.reload()
		time.Sleep(time.Second)
		f.offer(t, append(back(named(200, true)), back(named(300, false))...))
		time.Sleep(time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToDead, delivery.ReasonUnknownDestination), 5, "dead letters after the grace")
		known.Store(true)
		f.offer(t, named(400, true))
		time.Sleep(time.Second)
		exactly(t, f.count("c"), 5+5+5+10+10, "sent")
		time.Sleep(time.Minute)
		exactly(t, len(f.troubles(t)), 0, "troubles")
	})
}
