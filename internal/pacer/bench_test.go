package pacer

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// quick answers at once.
type quick struct{}

func (quick) Resolve(string) (string, bool) { return "default", true }
func (quick) Capacity(string) (int, bool)   { return 1024, true }
func (quick) Deliver(context.Context, string, *delivery.Job) delivery.Result {
	return delivery.Result{Class: delivery.Delivered, Status: 200}
}

// tickets are the receipt of jobs that are waited for.
type tickets chan struct{}

func (t tickets) Settle(*delivery.Job, delivery.Outcome) { t <- struct{}{} }

// BenchmarkOfferToSettle is what a job costs in here: placed, granted a slot, sent to a sink that answers at once, and
// settled. Processor time is what counts: how long it takes is up to the rate.
func BenchmarkOfferToSettle(b *testing.B) {
	c := campaign("c", 50_000)
	book := newBook(c)
	s := newStore(func() time.Duration { return 200 * time.Microsecond }).client()
	o := settings()
	o.Limiter, o.Gates, o.Sinks, o.Requeuer, o.Catalog = s, s, quick{}, &outbox{}, book
	o.MaxOpenAge, o.LateTolerance = time.Hour, time.Second
	p := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Run(ctx)
	}()
	done := make(tickets, 1<<20)
	b.ReportAllocs()
	list, receipt := jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, b.N), p.Receipt(done)
	for _, j := range list {
		j.Receipt = receipt
	}
	b.ResetTimer()
	before := cpu()
	settled := 0
	for rest := list; len(rest) > 0; {
		n := min(500, len(rest))
		if _, err := p.Offer(ctx, rest[:n]); err != nil {
			b.Fatal(err)
		}
		rest = rest[n:]
		for ; len(list)-len(rest)-settled > 20_000; settled++ {
			<-done
		}
	}
	for ; settled < len(list); settled++ {
		<-done
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/job")
	b.StopTimer()
	cancel()
	<-ended
}

// cpu is the processor time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
