package pacer

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// TestMemoryAndTallies: what waits in memory is told by campaign and by where it came from, and what became of the jobs.
func TestMemoryAndTallies(t *testing.T) {
	one(t, newBook(campaign("c", 10), campaign("off", 1)), nil, func(t *testing.T, f *fleet) {
		ingress, lane := newPartition("jobs/0"), newPartition("lanes/0")
		f.receiver.setAnswer(answering(delivery.Result{Class: delivery.Temporary}, func(j *delivery.Job) bool {
			return j.ID == "jobs/0/1" && j.Attempt == 0
		}))
		list := append(jobs(ingress, delivery.FromIngress, "c", 0, 12), jobs(lane, delivery.FromLane, "c", 0, 5)...)
		list[11].NotBefore, list[10].Weight = time.Now().Add(3*time.Second), 4
		heavy := jobs(ingress, delivery.FromIngress, "c", 100, 1)
		heavy[0].ExpiresAt = time.Now()
		f.offer(t, f.counted(0, append(list, heavy...)))
		f.offer(t, f.counted(0, jobs(ingress, delivery.FromIngress, "unheard-of", 200, 3)))
		synctest.Wait()
		held, err := f.daemons[0].InMemory(context.Background())
		if err != nil || len(held) != 1 || held[0].Campaign != "c" {
			t.Fatalf("%+v, %v", held, err)
		}
		sent := int64(f.count("c"))
		if h := held[0]; h.Jobs != 17-sent || h.Units != 20-sent || h.Retrying > 1 || h.Early < 1 || h.Early > 2 || sent > 2 {
			t.Errorf("%+v when %d of 12 and 5 were sent", h, sent)
		}
		time.Sleep(30 * time.Second)
		if held, err = f.daemons[0].InMemory(context.Background()); err != nil || len(held) != 0 {
			t.Errorf("%+v at the end, %v", held, err)
		}
		tallies := f.daemons[0].Tallies()
		// The one that was tried in vain went to a timer, and counts as sent once.
		want := delivery.Tally{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 16, delivery.OutcomeExpired: 1}, Sent: 16 + 3 + 1, Unsent: 1}
		if len(tallies) != 1 || tallies[0] != want {
			t.Errorf("%+v, want %+v", tallies, want)
		}
	})
}

// TestCountsOfDeletedCampaignsGo: after a while; one that is created anew in time goes on where it was.
func TestCountsOfDeletedCampaignsGo(t *testing.T) {
	one(t, newBook(campaign("stays", 10), campaign("returns", 10), campaign("goes", 10)), nil, func(t *testing.T, f *fleet) {
		p, lane := f.daemons[0], newPartition("lane/0")
		for i, id := range []string{"stays", "returns", "goes"} {
			f.offer(t, f.counted(0, jobs(lane, delivery.FromLane, id, int64(10*i), 5)))
		}
		time.Sleep(time.Second)
		f.book.remove("returns")
		f.book.remove("goes")
		time.Sleep(countsKeptFor - time.Second)
		exactly(t, len(p.Tallies()), 3, "tallies before their time is over")
		f.book.set(campaign("returns", 10))
		synctest.Wait()
		f.offer(t, f.counted(0, jobs(lane, delivery.FromLane, "returns", 100, 5)))
		time.Sleep(10 * time.Second)
		got := map[string]int64{}
		for _, tally := range p.Tallies() {
			got[tally.Campaign] = tally.Settled[delivery.OutcomeDelivered]
		}
		if want := map[string]int64{"stays": 5, "returns": 10}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		exactly(t, testutil.CollectAndCount(p.counts), 2*len(delivery.Outcomes)+6, "series: those of unknown campaigns, and three of each other")
		f.book.set(campaign("goes", 10))
		time.Sleep(time.Second)
		f.offer(t, f.counted(0, jobs(lane, delivery.FromLane, "goes", 200, 5)))
		time.Sleep(time.Second)
		exactly(t, p.counts.know("goes").Jobs(delivery.OutcomeDelivered), 5, "delivered of a campaign created anew")
		gone, _ := inTurn(t.Context(), p, func(instant) int { return len(p.campaigns.gone) })
		exactly(t, gone, 0, "campaigns are remembered as gone")
	})
}

// A job that its sink has been given and has not answered is in memory, and does not wait.
func TestJobsInHandAreCountedApart(t *testing.T) {
	one(t, newBook(campaign("c", 10)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setLatency(time.Minute)
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 1))
		time.Sleep(time.Second)
		exactly(t, f.inMemory(t, "c"), delivery.MemoryJobs{InHand: 1}, "in memory")
		time.Sleep(time.Minute)
	})
}
