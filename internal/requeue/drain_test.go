package requeue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
)

func TestDrainDropsWhatIsQueuedAndAwaitsWhatIsSent(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		s, waiting := newSource("a"), newSource("b")
		r.m.OnProduce = func(context.Context, int) (int16, error) { time.Sleep(time.Second); return 0, nil }
		r.Put(s.job(1, "c"), lane)
		synctest.Wait() // in the produce call
		r.Put(s.job(2, "c"), lane)
		r.Put(waiting.job(3, "c"), dead)

		began := time.Now()
		if got := r.Drain(t.Context()); got != 0 {
			t.Errorf("%d in doubt", got)
		}
		if took := time.Since(began); took < time.Second || took > 1010*time.Millisecond {
			t.Errorf("drain took %s, the call in flight and the dead letter 1s", took)
		}
		if _, ok := s.outcome(1); !ok || s.count() != 1 {
			t.Errorf("%d settled for lanes, want the one in flight only", s.count())
		}
		if _, ok := waiting.outcome(3); !ok {
			t.Error("the dead letter of a job that was sent is not written: the job would be sent again")
		}

		r.Put(waiting.job(4, "c"), lane)
		time.Sleep(2 * time.Second)
		if _, ok := waiting.outcome(4); !ok || waiting.count() != 2 {
			t.Error("nothing is written after a drain")
		}
	})
}

// A batch in doubt is neither queued nor sending between two attempts.
func TestDrainCountsWhatIsInDoubt(t *testing.T) {
	never := func(ctx context.Context, _ int) (int16, error) { <-ctx.Done(); return 0, ctx.Err() }
	lost := func(context.Context, int) (int16, error) { return 0, errors.New("connection reset") }
	no := func(context.Context, int) (int16, error) { return int16(kafka.NotEnoughReplicas), nil }
	late := func(context.Context, int) (int16, error) { return int16(kafka.NotEnoughReplicasAfterAppend), nil }
	for name, c := range map[string]struct {
		onProduce func(context.Context, int) (int16, error)
		want      int
		after     time.Duration
	}{
		"no answer yet": {never, 3, time.Second}, "answer lost": {lost, 3, time.Second}, "between two attempts": {lost, 3, 10 * time.Millisecond},
		"refused": {no, 0, time.Second}, "refused after the append": {late, 3, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := newRig(t), newSource("a")
				r.m.OnProduce = c.onProduce
				for i := range int64(3) { // before Run, so that they make one batch
					r.Put(s.job(i, "c"), lane)
				}
				run(t, r.Relay)
				time.Sleep(c.after)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if got := r.Drain(ctx); got != c.want || s.count() != 0 {
					t.Errorf("%d in doubt, want %d; %d settled", got, c.want, s.count())
				}
			})
		})
	}
}

func TestPutAfterRunIsDropped(t *testing.T) {
	r, s := newRig(t), newSource("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	r.Put(s.job(1, "c"), lane)
	if got := r.Drain(t.Context()); got != 0 || r.waiting() != 0 {
		t.Errorf("%d in doubt, %d queued", got, r.waiting())
	}
	r.Put(s.job(1, "c"), lane)
	if r.waiting() != 0 {
		t.Error("a stopped relay takes jobs")
	}
}
