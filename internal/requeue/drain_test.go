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
	synctest.Test(t, func(t *testing.T) {
		m, s, waiting := newMemory("t."), newSource("a"), newSource("b")
		m.OnProduce = func(context.Context, int) (int16, error) { time.Sleep(time.Second); return 0, nil }
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Workers: 1})
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

func TestDrainCountsWhatIsInDoubt(t *testing.T) {
	never := func(ctx context.Context, _ int) (int16, error) { <-ctx.Done(); return 0, ctx.Err() }
	lost := func(context.Context, int) (int16, error) { return 0, errors.New("connection reset") }
	no := func(context.Context, int) (int16, error) { return int16(kafka.NotEnoughReplicas), nil }
	late := func(context.Context, int) (int16, error) { return int16(kafka.NotEnoughReplicasAfterAppend), nil }
	for name, c := range map[string]struct {
		onProduce func(context.Context, int) (int16, error)
		want      int
	}{"no answer yet": {never, 3}, "answer lost": {lost, 3}, "refused": {no, 0}, "refused after the append": {late, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s := newMemory("t."), newSource("a")
				m.OnProduce = c.onProduce
				r := prepare(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
				for i := range int64(3) { // before Run, so that they make one batch
					r.Put(s.job(i, "c"), lane)
				}
				run(t, r)
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if got := r.Drain(ctx); got != c.want {
					t.Errorf("%d in doubt, want %d", got, c.want)
				}
				if s.count() != 0 {
					t.Errorf("%d settled", s.count())
				}
			})
		})
	}
}

// A batch in doubt is neither queued nor sending between two attempts.
func TestDrainCountsWhatIsInDoubtBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory("t."), newSource("a")
		m.OnProduce = func(context.Context, int) (int16, error) { return 0, errors.New("connection reset") }
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		r.Put(s.job(1, "c"), lane)
		time.Sleep(10 * time.Millisecond) // the first attempt is lost
		if got := r.Drain(t.Context()); got != 1 {
			t.Errorf("%d in doubt, want 1", got)
		}
	})
}

func TestPutAfterRunIsDropped(t *testing.T) {
	m, s := newMemory("t."), newSource("a")
	r := New(Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t."}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	r.Put(s.job(1, "c"), lane)
	if got := r.Drain(t.Context()); got != 0 || queued(r) != 0 {
		t.Errorf("%d in doubt, %d queued", got, queued(r))
	}
	r.Put(s.job(1, "c"), lane)
	if queued(r) != 0 {
		t.Error("a stopped relay takes jobs")
	}
}
