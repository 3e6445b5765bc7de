package pacer

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// finder is a sink whose jobs name their destinations in their payloads, and looking there takes long.
type finder struct {
	shops
	takes time.Duration

	mu    sync.Mutex
	looks map[string]int // by job
}

func (f *finder) set(o *Options) { o.Destinations, o.DestinationLimits = f.of, f.Limits }

func (f *finder) of(sink string) func(*delivery.Job) string {
	if sink != "hooks" {
		return nil
	}
	return func(j *delivery.Job) string {
		f.mu.Lock()
		f.looks[j.ID]++
		f.mu.Unlock()
		time.Sleep(f.takes)
		return string(j.Payload)
	}
}

// TestNobodyWaitsForWhatIsFoundInAPayload: while a destination is looked for in jobs of one campaign, another one, of another sink, sends at
// its rate, to the slot.
func TestNobodyWaitsForWhatIsFoundInAPayload(t *testing.T) {
	const seconds = 10
	good, slow := campaign("good", 100), campaign("slow", 100)
	good.Sink, slow.Sink = "plain", "hooks"
	hooks := &finder{takes: time.Second, looks: map[string]int{}}
	one(t, newBook(good, slow), hooks.set, func(t *testing.T, f *fleet) {
		var reading sync.WaitGroup
		p := newPartition("jobs/0")
		for i := range int64(seconds - 2) { // each by a reader of its own
			j := jobs(p, delivery.FromIngress, "slow", i, 1)
			j[0].Payload = []byte([]string{"", "shop"}[i%2])
			reading.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				_, _ = f.daemons[0].Offer(context.Background(), j)
			})
		}
		f.push(t, jobs(newPartition("lane/0"), delivery.FromLane, "good", 0, (seconds+1)*100))
		reading.Wait()
		sent := sorted(f.receiver.history(), "good")
		for i := range sent[1:] {
			if gap := sent[i+1].at - sent[i].at; gap > 20_000 {
				t.Fatalf("%d us between two jobs, of 100 a second", gap)
			}
		}
		atLeast(t, p.count(delivery.OutcomeDelivered), seconds-3, "sent of the slow ones")
		atLeast(t, len(sent), (seconds-1)*100, "sent of the others")
	})
}

// TestADestinationIsLookedForOnce: also if the job waits, fails or names none.
func TestADestinationIsLookedForOnce(t *testing.T) {
	c := blocking("c", 20)
	c.Sink = "hooks"
	hooks := &finder{looks: map[string]int{}, shops: shops{limit: map[string]int{"busy": 1}}}
	adjust := func(o *Options) { hooks.set(o); o.Retry.Initial = time.Second }
	one(t, newBook(c), adjust, func(t *testing.T, f *fleet) {
		f.receiver.setLatency(300 * time.Millisecond)
		f.receiver.setAnswer(answering(dead500, func(j *delivery.Job) bool { return j.Attempt == 0 && j.Offset%3 == 0 }))
		p := newPartition("jobs/0")
		list := jobs(p, delivery.FromIngress, "c", 0, 300)
		for i, j := range list {
			j.Payload = []byte([]string{"", "busy", "shop"}[i%3])
		}
		again := false
		for rest := slices.Clone(list); len(rest) > 0; again = true {
			var err error
			if rest, err = f.daemons[0].Offer(t.Context(), rest); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := p.counts().settled; n != len(list) || !again {
			t.Errorf("%d of %d are settled; some were refused at first: %v", n, len(list), again)
		}
		for id, n := range hooks.looks {
			if n != 1 || len(hooks.looks) != len(list) {
				t.Fatalf("job %s was looked at %d times, and %d of them at all", id, n, len(hooks.looks))
			}
		}
	})
}

// TestAJobWhoseDestinationIsNotFound, in a payload that takes too long to look at, stops no other campaign: what its answer blames is one
// destination, and it is not known which one.
func TestAJobWhoseDestinationIsNotFound(t *testing.T) {
	large, other := campaign("large", 10), campaign("other", 100)
	large.Sink, other.Sink = "hooks", "hooks"
	hooks := &finder{looks: map[string]int{}}
	one(t, newBook(large, other), hooks.set, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(answering(unreachable, func(j *delivery.Job) bool { return j.Campaign == "large" }))
		f.push(t, jobs(newPartition("lane/0"), delivery.FromLane, "large", 0, 50))
		list := jobs(newPartition("lane/1"), delivery.FromLane, "other", 0, 200)
		for _, j := range list {
			j.Payload = []byte("shop")
		}
		f.push(t, list)
		time.Sleep(2100 * time.Millisecond)
		atLeast(t, f.count("other"), 198, "jobs of another campaign were sent")
	})
}
