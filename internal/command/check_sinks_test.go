package command

import (
	"testing"

	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// TestDefaultTimeoutEndsWithinADrain: a default draws no note.
func TestDefaultTimeoutEndsWithinADrain(t *testing.T) {
	if d := sinkhttp.Default().Timeout; d > drainTimeout {
		t.Errorf("the default timeout of a sink is %s, and a drain lasts %s", d, drainTimeout)
	}
}
