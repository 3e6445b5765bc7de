package pacer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func keyedCampaign(rate int64) delivery.Campaign {
	c := campaign("c", rate)
	c.Keyed = []*delivery.Quota{{ID: "cap", Per: "to"}}
	return c
}

// TestJobsThatWaitForTheirKeys leave their queue before their slots come, each once, and use none; those that go at once are not asked about. A job
// outside its recipient's hours is not either: a cap must not count the evening.
func TestJobsThatWaitForTheirKeys(t *testing.T) {
	c := keyedCampaign(100)
	c.Local = localHours(t, 10*60, 20*60)
	const n, night = 200, 190
	asked := map[int64]int{}
	turns := func(o *Options) {
		o.Turns = func(_ context.Context, asks []delivery.TurnAsk) map[*delivery.Job]delivery.Turn {
			time.Sleep(20 * time.Millisecond) // other jobs are sent meanwhile
			waits := map[*delivery.Job]delivery.Turn{}
			for _, a := range asks {
				switch asked[a.Job.Offset]++; a.Job.Offset % 4 {
				case 0:
					waits[a.Job] = delivery.Turn{Due: time.Now().Add(time.Hour)}
				case 1:
					waits[a.Job] = delivery.Turn{Due: time.Now().Add(time.Hour), Capped: "cap"}
				}
			}
			return waits
		}
	}
	one(t, newBook(c), turns, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, n)
		for i, j := range list {
			if j.Zone = showing(12, 0, 0); i >= night {
				j.Zone = showing(23, 0, 0)
			}
		}
		f.offer(t, list)
		time.Sleep(3 * time.Second)
		kept, first := 0, int64(n)
		for offset, times := range asked {
			if first = min(first, offset); offset%4 < 2 {
				kept++
			}
			if times > 1 || offset >= night {
				t.Errorf("job %d was asked about %d times", offset, times)
			}
		}
		sent := f.receiver.history()
		if first < 45 || first > 60 || len(asked) != int(night-first) || len(sent) != night-kept {
			t.Errorf("%d jobs were asked about, from the %dth on; %d are kept, %d were sent", len(asked), first, kept, len(sent))
		}
		for _, a := range sent[first:] {
			if i := slices.IndexFunc(list, func(j *delivery.Job) bool { return j.ID == a.id }); i%4 < 2 {
				t.Errorf("%s was sent", a.id)
			}
		}
		if took := sent[len(sent)-1].at - sent[0].at; took > int64(len(sent))*10_300 {
			t.Errorf("%d jobs were sent in %d µs", len(sent), took)
		}
		later, capped := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKey), src.count(delivery.OutcomeCapped)
		if later+capped != kept || later < 30 || capped < 30 {
			t.Errorf("of %d jobs, %d wait and %d are capped", kept, later, capped)
		}
		back := jobs(newPartition("timer/0"), delivery.FromTimer, "c", 0, 10) // from the first of two timers
		for _, j := range back {
			j.Zone, j.Reason, j.Due = showing(12, 0, 0), string(delivery.ReasonKey), time.Now().Add(20*time.Second)
		}
		f.offer(t, back)
		if n := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKey); n != later+len(back) {
			t.Errorf("%d of %d jobs wait on for their turns", n-later, len(back))
		}
	})
}

// TestKeysAreAskedAboutAheadOfSlots: a sink that takes a while to ask sends at the slots nevertheless, also where a job comes to an empty queue. It has
// some time for each job even where calls are scarce and the slots that have passed are many.
func TestKeysAreAskedAboutAheadOfSlots(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		calls, together, jobs int
		early, tight          int
	}{
		{name: "many jobs", calls: 1 << 20, together: 500, jobs: 500, early: 450, tight: 10},
		{name: "one by one", calls: 1 << 20, together: 1, jobs: 50, early: 48},
		{name: "calls are scarce", calls: 4, together: 500, jobs: 500, tight: 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one(t, newBook(keyedCampaign(1000)), nil, func(t *testing.T, f *fleet) {
				f.receiver.setLatency(10 * time.Millisecond)
				early, tight, all := 0, 0, 0
				f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
					begun := time.Now().Add(-10 * time.Millisecond)
					if all++; j.SendFrom().After(begun) {
						early++
					}
					if j.SendBy.Time().Sub(begun) < 14*time.Millisecond {
						tight++
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				f.receiver.max = tt.calls
				src := newPartition("lane/0")
				for i := 0; i < tt.jobs; i += tt.together {
					f.offer(t, jobs(src, delivery.FromLane, "c", int64(i), tt.together))
					time.Sleep(200 * time.Millisecond)
				}
				time.Sleep(2 * time.Second)
				f.receiver.mu.Lock()
				defer f.receiver.mu.Unlock()
				if all < tt.jobs-1 || early < tt.early || tight > tt.tight {
					t.Errorf("of %d jobs, %d were passed on ahead of their slots, and %d with little time", all, early, tight)
				}
			})
		})
	}
}
