package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(120)
		s := b.of(delivery.FromIngress) // at most 90
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.acquire(ctx, 60); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 4)
		ask := func(ctx context.Context, name string, n int64) {
			go func() {
				if err := s.acquire(ctx, n); err != nil {
					name += " gave up"
				}
				got <- name
			}()
			synctest.Wait()
		}
		ask(ctx, "first", 60)
		ask(t.Context(), "second", 10) // would fit, but comes after
		if len(got) != 0 {
			t.Fatalf("%s did not wait its turn", <-got)
		}
		cancel()
		synctest.Wait()
		if both := []string{<-got, <-got}; !slices.Contains(both, "first gave up") || !slices.Contains(both, "second") {
			t.Fatal(both)
		}
		s.charge(80) // larger than reserved: in memory anyway
		if b.inUse() != 150 {
			t.Fatalf("held %d", b.inUse())
		}
		ask(t.Context(), "third", 10)
		s.charge(-60)
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("granted above the limit")
		}
		s.charge(-10)
		if name := <-got; name != "third" || b.inUse() != 90 {
			t.Fatalf("%s, held %d", name, b.inUse())
		}
	})
}

// Neither share can take the part of the other, however long its claims have waited, and one claim above the limit is
// granted rather than stuck.
func TestBudgetShares(t *testing.T) {
	for name, places := range map[string][2]delivery.Place{
		"slow lanes do not stop intake":       {delivery.FromLane, delivery.FromIngress},
		"a flood of jobs does not stop lanes": {delivery.FromIngress, delivery.FromLane},
		"nor do timers":                       {delivery.FromTimer, delivery.FromLane},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBudget(100)
				greedy, other := b.of(places[0]), b.of(places[1])
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				for range 200 { // each takes what it gets, and never returns it
					go func() { _ = greedy.acquire(ctx, 5) }()
				}
				synctest.Wait()
				soon, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := other.acquire(soon, 25); err != nil || b.inUse() != 100 {
					t.Errorf("%v, held %d", err, b.inUse())
				}
				for range 50 { // what others return goes to whom it is reserved for
					other.charge(-5)
					synctest.Wait()
					if err := other.acquire(soon, 5); err != nil {
						t.Fatal(err)
					}
				}
				if err := other.acquire(soon, 5); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("granted above the limit: %v", err)
				}
				stop()
				synctest.Wait()
				other.charge(-25)
				soon, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := other.acquire(soon, 1000); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
