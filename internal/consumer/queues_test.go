package consumer

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// queues is a handler with a bounded queue for each of some campaigns, as package pacer has them. Jobs that do not fit are refused, and their
// source hears of room once half of the queue is empty. A job is seen when it is sent; those of other campaigns are sent at once.
type queues struct {
	*fake
	mu     sync.Mutex
	of     map[string]*queue
	offers int
}

type queue struct {
	capacity int
	paused   bool // nothing of it is sent
	jobs     []*delivery.Job
	waiting  map[delivery.Source]bool // to hear of room
}

func newQueues(capacity int, campaigns ...string) *queues {
	q := &queues{fake: newFake(), of: map[string]*queue{}}
	for _, c := range campaigns {
		q.of[c] = &queue{capacity: capacity, waiting: map[delivery.Source]bool{}}
	}
	return q
}

func (q *queues) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offers++
	var rest []*delivery.Job
	full := map[*queue]bool{}
	for _, j := range jobs {
		switch of := q.of[j.Campaign]; {
		case of == nil:
			rest = append(rest, j)
		case full[of] || len(of.jobs) >= of.capacity:
			full[of], of.waiting[j.Source] = true, true
			refused = append(refused, j)
		default:
			of.jobs = append(of.jobs, j)
		}
	}
	_, err = q.fake.Offer(ctx, rest)
	return refused, err
}

// everything is more than any queue has.
const everything = math.MaxInt

// send settles at most n jobs of each queue, and says where there is room.
func (q *queues) send(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for campaign, of := range q.of {
		if of.paused {
			continue
		}
		ready := min(n, len(of.jobs))
		_, _ = q.fake.Offer(context.Background(), of.jobs[:ready]) // settles
		if of.jobs = of.jobs[ready:]; len(of.jobs) > of.capacity/2 {
			continue
		}
		for src := range of.waiting {
			src.GrantCapacity(campaign, int64(of.capacity-len(of.jobs)))
		}
		clear(of.waiting)
	}
}

// run sends n jobs of each queue every few milliseconds, until stopped.
func (q *queues) run(t *testing.T, n int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for retry.Sleep(ctx, time.Millisecond) == nil {
			q.send(n)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// change changes the queue of a campaign.
func (q *queues) change(campaign string, how func(*queue)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	how(q.of[campaign])
}

// resize changes the room of a queue, and says so.
func (q *queues) resize(campaign string, capacity int) {
	q.change(campaign, func(of *queue) { of.capacity = capacity })
	q.send(0)
}

func (q *queues) Revoke(ctx context.Context) error {
	for campaign := range q.of {
		q.change(campaign, func(of *queue) { of.jobs = slices.DeleteFunc(of.jobs, revokedOf) })
	}
	return q.fake.Revoke(ctx)
}

// calls is how many offers there were.
func (q *queues) calls() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.offers
}
