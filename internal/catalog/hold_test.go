package catalog

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestHold: one process holds a thing at a time, until it releases it or its session ends.
func TestHold(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	hold := func(what string) (context.Context, func(), error) {
		a, err := NewAdmin(dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		return a.Hold(t.Context(), what)
	}
	held, release, err := hold("replay a")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := hold("replay a"); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	_, other, err := hold("replay b")
	if err != nil {
		t.Fatalf("something else: %v", err)
	}
	other()
	if held.Err() != nil {
		t.Errorf("meanwhile: %v", context.Cause(held))
	}
	release()
	if held, release, err = hold("replay a"); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	defer release()
	run(t, connected(t, dsn), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	select {
	case <-held.Done():
		if !errors.Is(context.Cause(held), ErrLost) {
			t.Errorf("it ends with %v", context.Cause(held))
		}
	case <-time.After(patience):
		t.Error("nobody noticed that the session is over")
	}
}
