package pacer

import (
	"context"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// receiver is a sink that notes the time and the daemon of each job.
type receiver struct {
	mu      sync.Mutex
	began   time.Time
	sent    []arrival
	latency func() time.Duration
	answer  func(daemon int, j *delivery.Job) delivery.Result
	hangs   func(j *delivery.Job) bool // whether a call takes a second
	deaf    func(j *delivery.Job) bool // whether it is never answered, and given up after ten
	max     int

	flyingTo, mostTo map[string]int // calls in flight, and the most there were, by destination; "" for jobs without one
}

type arrival struct {
	at       int64 // microseconds since the receiver began
	campaign string
	daemon   int
	id       string
	weight   int64
	attempt  int
	step     string // of a request that has begun

	destination string
}

func newReceiver() *receiver {
	return &receiver{
		began: time.Now(), max: 1 << 20, latency: func() time.Duration { return 5 * time.Millisecond },
		flyingTo: map[string]int{}, mostTo: map[string]int{},
	}
}

// history is what was sent so far.
func (r *receiver) history() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.sent...)
}

// setLatency changes how long a call takes.
func (r *receiver) setLatency(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latency = func() time.Duration { return d }
}

// setAnswer changes what calls answer.
func (r *receiver) setAnswer(f func(daemon int, j *delivery.Job) delivery.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// setDeaf changes whether calls are answered.
func (r *receiver) setDeaf(deaf bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = func(*delivery.Job) bool { return deaf }
}

// daemonSinks is the receiver as one daemon's sinks: every sink name that does not begin with "no" exists.
type daemonSinks struct {
	*receiver
	daemon int
}

func (d daemonSinks) Resolve(name string) (string, bool) {
	if name == "" {
		return "default", true
	}
	return name, name[:2] != "no"
}

func (d daemonSinks) Capacity(string) (int, bool) { return d.max, true }

func (d daemonSinks) Deliver(ctx context.Context, sink string, j *delivery.Job) delivery.Result {
	to, _ := j.DestinationAt(sink)
	d.mu.Lock()
	a := arrival{time.Since(d.began).Microseconds(), j.Campaign, d.daemon, j.ID, j.Weight, j.Attempt, "", to}
	if j.State != nil {
		a.step = j.State.Step
	}
	d.sent = append(d.sent, a)
	d.flyingTo[to]++
	d.mostTo[to] = max(d.mostTo[to], d.flyingTo[to])
	answer, latency := d.answer, d.latency()
	defer d.landed(to)
	if d.hangs != nil && d.hangs(j) {
		latency = time.Second
	}
	if d.deaf != nil && d.deaf(j) {
		latency = 10 * time.Second
		answer = func(int, *delivery.Job) delivery.Result {
			return delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody, Detail: "no answer"}
		}
	}
	d.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return delivery.Result{Class: delivery.Interrupted}
	}
	if answer != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		return answer(d.daemon, j)
	}
	return delivery.Result{Class: delivery.Delivered}
}

// landed notes the end of a call.
func (r *receiver) landed(destination string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flyingTo[destination]--
}
