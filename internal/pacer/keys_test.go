package pacer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func keyedCampaign(rate int64) delivery.Campaign {
	c := campaign("c", rate)
	c.Keyed = []*delivery.Quota{{ID: "cap", Per: "to"}}
	return c
}

// TestKeysRefuseByTheFoundDestination: a job that a quota by destination never allows is a dead letter, also if its record names no destination.
func TestKeysRefuseByTheFoundDestination(t *testing.T) {
	c := keyedCampaign(10)
	c.Sink = "hooks"
	k := &keys{refuse: func(j *delivery.Job) *delivery.Flaw {
		if j.KeyAt("hooks", delivery.PerDestination) != "shop" {
			return nil
		}
		return &delivery.Flaw{Defect: delivery.ReasonOverweight}
	}}
	find := &finder{looks: map[string]int{}}
	one(t, newBook(c), func(o *Options) { find.set(o); o.Keys = k }, func(t *testing.T, f *fleet) {
		list := jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 2)
		list[0].Payload = []byte("shop")
		f.offer(t, list)
		time.Sleep(2 * time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToDead, delivery.ReasonOverweight), 1, "dead letters")
		exactly(t, len(f.receiver.history()), 1, "deliveries")
	})
}

// keys allow jobs, after a while, as reserve and count say, one at a time; nil: all. They note what is counted and not ended.
type keys struct {
	refuse  func(j *delivery.Job) *delivery.Flaw
	reserve func(j *delivery.Job) delivery.KeyAnswer
	count   func(j *delivery.Job) delivery.KeyAnswer
	takes   time.Duration // an answer
	down    time.Time     // until when an answer takes a second

	mu                       sync.Mutex
	counted                  map[*delivery.Job]bool
	asked, released, unasked int
	left                     int // turns
}

func (k *keys) Refuse(jobs []*delivery.Job) {
	for _, j := range jobs {
		if k.refuse != nil {
			j.Flaw = k.refuse(j)
		}
	}
}

func (k *keys) Reserve(asks []delivery.KeyAsk, answer func(delivery.KeyAsk, delivery.KeyAnswer, func())) {
	time.AfterFunc(k.takes, func() {
		for _, a := range asks {
			var told delivery.KeyAnswer
			if k.reserve != nil {
				k.mu.Lock()
				told = k.reserve(a.Job)
				k.mu.Unlock()
			}
			answer(a, told, func() {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.left++
			})
		}
	})
}

func (k *keys) Count(ask delivery.KeyAsk, answer func(delivery.KeyAnswer)) {
	asked, takes := time.Now(), k.takes
	if asked.Before(k.down) {
		takes = time.Second
	}
	time.AfterFunc(takes, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		a := delivery.KeyAnswer{SendBy: delivery.StampOf(asked.Add(delivery.LeastKeyMargin))}
		if k.count != nil {
			a = k.count(ask.Job)
		}
		if k.asked++; a.SendBy != 0 {
			if k.counted == nil {
				k.counted = map[*delivery.Job]bool{}
			}
			k.counted[ask.Job] = true
		}
		answer(a)
	})
}

func (k *keys) Release(j *delivery.Job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released++
	delete(k.counted, j)
}

// keySinks are sinks whose jobs have to be counted.
type keySinks struct {
	Sinks
	keys *keys
}

func (s keySinks) Deliver(ctx context.Context, id string, j *delivery.Job) delivery.Result {
	s.keys.mu.Lock()
	if !s.keys.counted[j] || time.Now().After(j.SendBy.Time()) {
		s.keys.unasked++
	}
	delete(s.keys.counted, j)
	s.keys.mu.Unlock()
	return s.Sinks.Deliver(ctx, id, j)
}

// oneKeyed plays with a campaign whose jobs need their keys, and sees that each job is counted before it is sent, and that nothing stays counted.
func oneKeyed(t *testing.T, c delivery.Campaign, k *keys, play func(t *testing.T, f *fleet)) {
	t.Helper()
	one(t, newBook(c), func(o *Options) { o.Keys, o.Sinks = k, keySinks{o.Sinks, k} }, func(t *testing.T, f *fleet) {
		play(t, f)
		k.mu.Lock()
		defer k.mu.Unlock()
		atMost(t, k.unasked, 0, "jobs were sent that were not counted then")
		atMost(t, len(k.counted), 0, "counted that were not sent")
	})
}

// TestKeysAreAskedAheadOfSlots: an answer that takes a while costs no slot, also where a job comes to an empty queue, and no call waits for it: with
// few calls as many jobs are sent as without keys.
func TestKeysAreAskedAheadOfSlots(t *testing.T) {
	const lasts = 10 * time.Millisecond
	for _, tt := range []struct {
		name                  string
		calls, together, jobs int
		within                time.Duration
	}{
		{name: "many jobs", calls: 1 << 20, together: 1000, jobs: 1000, within: 1100 * time.Millisecond},
		{name: "one by one", calls: 1 << 20, together: 1, jobs: 50},
		{name: "calls are scarce", calls: 4, together: 500, jobs: 500, within: 500 / 4 * lasts * 110 / 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &keys{takes: 8 * time.Millisecond}
			oneKeyed(t, keyedCampaign(1000), k, func(t *testing.T, f *fleet) {
				f.receiver.setLatency(lasts)
				f.receiver.max = tt.calls
				src := newPartition("lane/0")
				for i := 0; i < tt.jobs; i += tt.together {
					f.offer(t, jobs(src, delivery.FromLane, "c", int64(i), tt.together))
					time.Sleep(200 * time.Millisecond)
				}
				time.Sleep(3 * time.Second)
				sent := f.receiver.history()
				must(t, len(sent), tt.jobs, "sent")
				if tt.within > 0 {
					atMost(t, sent[len(sent)-1].at-sent[0].at, tt.within.Microseconds(), "µs for %d jobs", tt.jobs)
				}
				atMost(t, k.asked, tt.jobs*11/10, "times that keys were asked for %d jobs", tt.jobs)
			})
		})
	}
}

// TestKeysThatAnswerSlowly, but in time for their windows, keep no job from being sent, also where a take is as slow.
func TestKeysThatAnswerSlowly(t *testing.T) {
	for _, tt := range []struct{ takes, keys time.Duration }{{1, 22}, {22, 22}, {1, 35}, {30, 30}, {36, 36}} {
		k := &keys{takes: tt.keys * time.Millisecond}
		oneKeyed(t, keyedCampaign(1000), k, func(t *testing.T, f *fleet) {
			f.store.latency = func() time.Duration { return tt.takes * time.Millisecond / 2 }
			f.offered(t, delivery.FromLane, "c", 1)
			time.Sleep(time.Second)
			exactly(t, f.count("c"), 1, "jobs are sent where a take lasts %d ms", tt.takes)
			atMost(t, k.asked, 10, "times that its keys were asked")
		})
	}
}

// TestKeysThatAnswerBetweenSlots: a campaign is sent at its rate although its first slots come at once. Its keys answer too late for those, and allow
// a job no longer when the next slot comes.
func TestKeysThatAnswerBetweenSlots(t *testing.T) {
	for _, answer := range []time.Duration{16, 18, 25} {
		k := &keys{takes: answer * time.Millisecond}
		c := keyedCampaign(24)
		c.Burst = 1
		oneKeyed(t, c, k, func(t *testing.T, f *fleet) {
			time.Sleep(time.Second)
			src := newPartition("lane/0")
			for i := range int64(10) {
				f.offer(t, jobs(src, delivery.FromLane, "c", 12*i, 12))
				time.Sleep(500 * time.Millisecond)
			}
			time.Sleep(500 * time.Millisecond)
			exactly(t, f.count("c"), 120, "jobs are sent where keys answer in %d ms", answer)
		})
	}
}

// TestKeysThatAnswerAgain: after an outage, the next job is sent as before it.
func TestKeysThatAnswerAgain(t *testing.T) {
	k := &keys{takes: 2 * time.Millisecond}
	oneKeyed(t, keyedCampaign(100), k, func(t *testing.T, f *fleet) {
		k.down = time.Now().Add(20 * time.Second)
		src := f.offered(t, delivery.FromLane, "c", 1)
		time.Sleep(22 * time.Second)
		for i := 1; i < 8; i++ {
			f.offer(t, jobs(src, delivery.FromLane, "c", int64(i), 1))
			time.Sleep(500 * time.Millisecond)
			exactly(t, f.count("c"), i+1, "jobs were sent half a second after the last one came")
		}
	})
}

// TestAJobThatWasCountedIsBeforeLaterOnes: it is asked about again as one that has had its turn, after an answer that came too late, or a pause.
func TestAJobThatWasCountedIsBeforeLaterOnes(t *testing.T) {
	var had []bool
	k := &keys{takes: 5 * time.Millisecond}
	k.count = func(j *delivery.Job) (a delivery.KeyAnswer) {
		switch had = append(had, j.HadTurn()); len(had) {
		case 1: // it was not asked about in time
		case 2:
			a.Late = true
		default:
			a.SendBy = delivery.StampOf(time.Now().Add(35 * time.Millisecond))
		}
		return a
	}
	oneKeyed(t, keyedCampaign(100), k, func(t *testing.T, f *fleet) {
		f.offered(t, delivery.FromIngress, "c", 1)
		time.Sleep(time.Second)
		k.mu.Lock()
		defer k.mu.Unlock()
		must(t, fmt.Sprint(had), "[false false true]", "whether it had had its turn, when it was asked about")
	})
}

// TestJobsThatTheirKeysRefuse cost no slot, wait or are capped, and what is allowed and not sent is given back: at a pause, at a change of the sink's
// calls, and when the answer comes too late.
func TestJobsThatTheirKeysRefuse(t *testing.T) {
	t.Run("each other job", func(t *testing.T) {
		n := 0
		k := &keys{takes: 5 * time.Millisecond}
		k.count = func(*delivery.Job) delivery.KeyAnswer {
			switch n++; n % 4 {
			case 0:
				return delivery.KeyAnswer{Wait: time.Hour, Reason: delivery.ReasonKey}
			case 1:
				return delivery.KeyAnswer{Wait: time.Hour, Capped: "cap"}
			}
			return delivery.KeyAnswer{SendBy: delivery.StampOf(time.Now().Add(35 * time.Millisecond))}
		}
		oneKeyed(t, keyedCampaign(100), k, func(t *testing.T, f *fleet) {
			src := f.offered(t, delivery.FromIngress, "c", 400)
			time.Sleep(2500 * time.Millisecond)
			sent := f.receiver.history()
			exactly(t, len(sent), 200, "sent")
			atMost(t, sent[len(sent)-1].at-sent[0].at, 2_050_000, "µs from the first to the last")
			exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKey), 100, "wait")
			exactly(t, src.count(delivery.OutcomeCapped), 100, "capped")
		})
	})
	t.Run("a pause", func(t *testing.T) {
		k := &keys{takes: 8 * time.Millisecond}
		oneKeyed(t, keyedCampaign(1000), k, func(t *testing.T, f *fleet) {
			src := f.offered(t, delivery.FromIngress, "c", 1000)
			time.Sleep(300 * time.Millisecond)
			f.book.set(as(delivery.StatusPaused, keyedCampaign(1000)))
			time.Sleep(time.Millisecond)
			before := f.count("c")
			time.Sleep(time.Second)
			if n := f.count("c"); n > before || src.count(delivery.OutcomeRequeued) != 1000-n {
				t.Errorf("%d were sent after the pause, %d of %d went to the lane", n-before, src.count(delivery.OutcomeRequeued), 1000-n)
			}
		})
	})
	t.Run("late answers", func(t *testing.T) {
		n := 0
		k := &keys{takes: 8 * time.Millisecond}
		k.count = func(*delivery.Job) delivery.KeyAnswer {
			switch n++; n % 5 {
			case 0:
				return delivery.KeyAnswer{}
			case 1:
				return delivery.KeyAnswer{Wait: time.Second, Reason: delivery.ReasonRetry}
			case 2:
				return delivery.KeyAnswer{SendBy: delivery.StampOf(time.Now().Add(2 * time.Millisecond))}
			}
			return delivery.KeyAnswer{SendBy: delivery.StampOf(time.Now().Add(32 * time.Millisecond))}
		}
		oneKeyed(t, keyedCampaign(100), k, func(t *testing.T, f *fleet) {
			f.offered(t, delivery.FromLane, "c", 100)
			time.Sleep(10 * time.Second)
			exactly(t, f.count("c"), 100, "sent")
		})
	})
	t.Run("a revocation", func(t *testing.T) {
		k := &keys{takes: 8 * time.Millisecond}
		oneKeyed(t, keyedCampaign(1000), k, func(t *testing.T, f *fleet) {
			for range 3 {
				src := newPartition("lane/0")
				f.offer(t, jobs(src, delivery.FromLane, "c", 0, 1000))
				time.Sleep(100*time.Millisecond + 3*time.Millisecond)
				f.revoke(t, src)
				k.mu.Lock()
				atMost(t, len(k.counted), 0, "counted after that")
				k.mu.Unlock()
			}
		})
	})
}
