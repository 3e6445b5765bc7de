package pacer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestHeldAndTallies: what waits in memory is told by campaign and by where it came from, and what became of the jobs.
func TestHeldAndTallies(t *testing.T) {
	b := newBook(campaign("c", 10), campaign("off", 1))
	one(t, b, nil, func(t *testing.T, f *fleet) {
		ingress, lane := newPartition("jobs/0"), newPartition("lanes/0")
		f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
			if j.ID == "jobs/0/1" && j.Attempt == 0 {
				return delivery.Result{Class: delivery.Temporary}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		list := append(jobs(ingress, delivery.FromIngress, "c", 0, 12), jobs(lane, delivery.FromLane, "c", 0, 5)...)
		list[11].NotBefore, list[10].Weight = time.Now().Add(3*time.Second), 4
		heavy := jobs(ingress, delivery.FromIngress, "c", 100, 1)
		heavy[0].ExpiresAt = time.Now()
		f.offer(t, append(list, heavy...))
		f.offer(t, jobs(ingress, delivery.FromIngress, "unheard-of", 200, 3))
		synctest.Wait()
		held, err := f.daemons[0].Held(context.Background())
		if err != nil || len(held) != 1 || held[0].Campaign != "c" {
			t.Fatalf("%+v, %v", held, err)
		}
		sent := int64(f.count("c"))
		if h := held[0]; h.Jobs != 17-sent || h.Units != 20-sent || h.Direct != 12-sent || sent > 2 {
			t.Errorf("%+v when %d of 12 and 5 were sent", h, sent)
		}
		time.Sleep(30 * time.Second)
		if held, err = f.daemons[0].Held(context.Background()); err != nil || len(held) != 0 {
			t.Errorf("%+v at the end, %v", held, err)
		}
		tallies := f.daemons[0].Tallies()
		// The one that was tried in vain went to a timer, and counts as sent once.
		want := delivery.Tally{Campaign: "c", Settled: delivery.Settled{Delivered: 16, Expired: 1}, Sent: 16 + 3 + 1 + 1}
		if len(tallies) != 1 || tallies[0] != want {
			t.Errorf("%+v, want %+v", tallies, want)
		}
	})
}
