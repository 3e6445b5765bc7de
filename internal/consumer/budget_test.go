package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		ctx, cancel := context.WithCancel(t.Context())
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(b.acquire(ctx, 60, false))
		got := make(chan string, 4)
		ask := func(ctx context.Context, name string, n int64, lane bool) {
			go func() {
				if err := b.acquire(ctx, n, lane); err != nil {
					name += " gave up"
				}
				got <- name
			}()
			synctest.Wait()
		}
		ask(ctx, "first", 60, false)
		ask(t.Context(), "second", 10, false) // would fit, but comes after
		if len(got) != 0 {
			t.Fatalf("%s did not wait its turn", <-got)
		}
		cancel()
		synctest.Wait()
		if a, b := <-got, <-got; a != "first gave up" || b != "second" {
			t.Fatalf("%s, %s", a, b)
		}
		b.charge(80, false) // larger than reserved: in memory anyway
		if b.held() != 150 {
			t.Fatalf("held %d", b.held())
		}
		ask(t.Context(), "third", 10, false)
		b.charge(-50, false)
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("granted above the limit")
		}
		b.charge(-10, false)
		if name := <-got; name != "third" || b.held() != 100 {
			t.Fatalf("%s, held %d", name, b.held())
		}
	})
}

// Lanes cannot take the part of ingress, and one claim above the limit is granted rather than stuck.
func TestBudgetShares(t *testing.T) {
	b := newBudget(100)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.acquire(ctx, 75, true); err != nil {
		t.Fatal(err)
	}
	if err := b.acquire(ctx, 1, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("lanes took more than their share: %v", err)
	}
	if err := b.acquire(t.Context(), 25, false); err != nil {
		t.Fatal(err)
	}
	b.charge(-75, true)
	b.charge(-25, false)
	if err := b.acquire(t.Context(), 1000, true); err != nil || b.held() != 1000 {
		t.Fatalf("%v, held %d", err, b.held())
	}
}
