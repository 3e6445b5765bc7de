package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestCancellationWithoutALedger is refused before anything is read or recorded.
func TestCancellationWithoutALedger(t *testing.T) {
	if _, err := (Topics{}).Cancel(t.Context(), Cancellation{IDs: []string{"u-1"}}, nil); !errors.Is(err, ErrNoLedger) {
		t.Errorf("%v", err)
	}
}

// TestUnreadPartitions: each error has a line of its own, and those for want of time share one.
func TestUnreadPartitions(t *testing.T) {
	late := fmt.Errorf("pacer.lanes/3: %w", context.DeadlineExceeded)
	away := errors.New("pacer.lanes/4: no leader")
	want := []string{away.Error(), "2 partitions could not be read to their ends in time: too much waits in them"}
	if got := unread(errors.Join(nil, errors.Join(late, away)), nil, late); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := unread(nil, errors.Join(nil, nil)); got == nil || len(got) > 0 {
		t.Errorf("%q", got)
	}
}
