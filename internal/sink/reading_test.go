package sink_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

// TestReadings: what a sink has answered, how long that took, and what it has not answered yet. A call that pacer has cancelled is no
// answer.
func TestReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		slow := fake{deliver: func(_ context.Context, j *delivery.Job) delivery.Result {
			switch j.ID {
			case "hangs":
				<-hangs
				return delivery.Result{Class: delivery.Interrupted}
			case "fails":
				time.Sleep(800 * time.Millisecond)
				return delivery.Result{Class: delivery.Temporary, Status: 500, Detail: "HTTP 500"}
			}
			time.Sleep(40 * time.Millisecond)
			return delivery.Result{}
		}}
		r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"slow": entry(slow), "a": entry(answers(delivery.Result{}))}})
		for range 98 {
			r.Deliver(t.Context(), "slow", &delivery.Job{})
		}
		for range 2 {
			r.Deliver(t.Context(), "slow", &delivery.Job{ID: "fails"})
		}
		failed := time.Now()
		r.Deliver(t.Context(), "slow", &delivery.Job{}) // it is not forgotten
		go r.Deliver(t.Context(), "slow", &delivery.Job{ID: "hangs"})
		synctest.Wait()
		list := r.Readings()
		if len(list) != 2 || list[0].Sink != "a" || list[0].Took.Total() != 0 || list[0].Most != 7 {
			t.Fatalf("%+v", list)
		}
		got := &list[1]
		if got.InFlight != 1 || got.Answers[delivery.Delivered] != 99 || got.Answers[delivery.Temporary] != 2 || got.Took.Total() != 101 {
			t.Errorf("%+v", got)
		}
		if last := got.Failure; last.Detail != "HTTP 500" || !last.At.Equal(failed) || list[0].Failure != (delivery.Failure{}) {
			t.Errorf("the last failures: %+v and %+v", last, list[0].Failure)
		}
		for part, want := range map[float64]time.Duration{0.5: 40 * time.Millisecond, 0.99: 800 * time.Millisecond} {
			if took := got.Took.Quantile(part); (took - want).Abs() > want/8 {
				t.Errorf("%v of the answers within %s, want about %s", part, took, want)
			}
		}
		close(hangs)
		synctest.Wait()
		if after := r.Readings()[1]; after.InFlight != 0 || after.Took.Total() != 101 || after.Failure != got.Failure || after.Answers[delivery.Interrupted] != 1 {
			t.Errorf("%+v", after)
		}
	})
}
