package pacer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// life is a random history of two campaigns, their sinks and their keys.
type life struct {
	*rand.Rand
}

// one returns one of these.
func of[T any](l life, list ...T) T { return list[l.IntN(len(list))] }

func (l life) millis(most int) time.Duration { return time.Duration(l.IntN(most)) * time.Millisecond }

// campaign is one with random settings.
func (l life) campaign(id string) delivery.Campaign {
	c := campaign(id, of[int64](l, 1, 20, 200, 2000))
	c.Status = of(l, delivery.StatusActive, delivery.StatusActive, delivery.StatusActive, delivery.StatusPaused)
	c.MaxInFlight = of(l, 0, 0, 1, 5)
	c.Sink = of(l, "", "", "other", "none")
	if l.IntN(3) == 0 {
		c.Burst = 20
	}
	if l.IntN(2) == 0 {
		c.Keyed = []*delivery.Quota{{ID: "cap", Per: "to"}}
	}
	if l.IntN(4) == 0 {
		c.Rate = delivery.Rate{}
	}
	if l.IntN(3) == 0 {
		c.Quotas = []*delivery.Quota{{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Second, Limit: 50}}}}
	}
	return c
}

// result is an answer of a sink.
func (l life) result() delivery.Result {
	r := delivery.Result{Class: of(l, delivery.Delivered, delivery.Delivered, delivery.Delivered, delivery.Rejected, delivery.Permanent,
		delivery.Temporary, delivery.Throttled, delivery.Unreachable, delivery.Misconfigured, delivery.Withheld, delivery.Duplicate, delivery.Cancelled)}
	r.Scope = of(l, delivery.ScopeSink, delivery.ScopeDestination, delivery.ScopeCampaign, delivery.ScopeRecipient)
	r.RetryAfter = of(l, 0, l.millis(3000))
	return r
}

// key is an answer of the keys.
func (l life) key(now time.Time) delivery.KeyAnswer {
	switch l.IntN(5) {
	case 0:
		return delivery.KeyAnswer{Wait: l.millis(3000), Reason: delivery.ReasonKey}
	case 1:
		return delivery.KeyAnswer{Wait: time.Hour, Capped: "cap"}
	case 2:
		return of(l, delivery.KeyAnswer{}, delivery.KeyAnswer{Wait: time.Second, Reason: delivery.ReasonRetry})
	default:
		return delivery.KeyAnswer{SendBy: delivery.StampOf(now.Add(delivery.LeastKeyMargin))}
	}
}

// TestWhateverCampaignsGoThrough: each job that was taken comes to one end, and nothing stays counted, whatever is changed and answered meanwhile.
func TestWhateverCampaignsGoThrough(t *testing.T) {
	testservices.Simulation(t)
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := life{rand.New(rand.NewPCG(seed, 7))}
			k := &keys{takes: l.millis(20)}
			answers, told := life{rand.New(rand.NewPCG(seed, 8))}, life{rand.New(rand.NewPCG(seed, 9))}
			k.count = func(*delivery.Job) delivery.KeyAnswer { return told.key(time.Now()) } // under the lock of k
			b := newBook(l.campaign("c"), l.campaign("d"))
			one(t, b, func(o *Options) { o.Keys, o.Sinks = k, keySinks{o.Sinks, k} }, func(t *testing.T, f *fleet) {
				f.receiver.max = of(l, 4, 64)
				f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result { return answers.result() }) // under the lock of the receiver
				f.receiver.setLatency(l.millis(200))
				sources := map[delivery.Place]*partition{
					delivery.FromIngress: newPartition("in/0"), delivery.FromLane: newPartition("lane/0"), delivery.FromTimer: newPartition("timer/0"),
				}
				next, taken := map[delivery.Place]int64{}, map[delivery.Place]int{}
				for range 60 {
					from, n := of(l, delivery.FromIngress, delivery.FromLane, delivery.FromTimer), l.IntN(20)
					list := jobs(sources[from], from, of(l, "c", "c", "d"), next[from], n)
					next[from] += int64(n)
					for _, j := range list {
						j.Destination, j.Weight, j.Attempt = of(l, "", "a", "b"), of[int64](l, 1, 1, 1, 3), of(l, 0, 0, 2)
					}
					taken[from] += n - f.offer(t, list)
					time.Sleep(l.millis(200))
					if l.IntN(2) == 0 {
						b.set(l.campaign(of(l, "c", "d")))
					}
				}
				f.receiver.setAnswer(always(delivery.Result{}))
				k.mu.Lock()
				k.count = nil
				k.mu.Unlock()
				for _, id := range []string{"c", "d"} {
					c := campaign(id, 1000)
					c.Keyed = of(l, nil, []*delivery.Quota{{ID: "cap", Per: "to"}})
					b.set(c)
				}
				time.Sleep(30 * time.Minute)
				for from, p := range sources {
					if h := p.counts(); h.settled+h.released != taken[from] || h.twice > 0 {
						t.Errorf("%v: of %d jobs %d are settled and %d released, %d twice", from, taken[from], h.settled, h.released, h.twice)
					}
				}
				k.mu.Lock()
				defer k.mu.Unlock()
				atMost(t, len(k.counted), 0, "jobs are counted that were not sent")
			})
		})
	}
}
