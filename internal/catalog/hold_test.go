package catalog

import (
	"context"
	"testing"
	"time"
)

// TestHold: one process holds a thing at a time, until it releases it or its session ends.
func TestHold(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	hold := func(what string) (context.Context, func()) {
		t.Helper()
		held, release, err := adminOf(t, dsn).Hold(t.Context(), what)
		must(t, err)
		return held, release
	}
	held, release := hold("replay a")
	_, _, err := adminOf(t, dsn).Hold(t.Context(), "replay a")
	line(t, err, ErrLocked, "")
	_, other := hold("replay b")
	other()
	if held.Err() != nil {
		t.Errorf("meanwhile: %v", context.Cause(held))
	}
	release()
	held, release = hold("replay a")
	defer release()
	run(t, connected(t, dsn), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	select {
	case <-held.Done():
		line(t, context.Cause(held), ErrLost, "")
	case <-time.After(patience):
		t.Error("nobody noticed that the session is over")
	}
}
