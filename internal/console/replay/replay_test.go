package replay

import (
	"context"
	"log/slog"
	"testing"

	"github.com/pacer/pacer/internal/deadletter"
)

// TestAReplayEndsOnceOthersMayBegin: who sees that it has ended can begin the next one.
func TestAReplayEndsOnceOthersMayBegin(t *testing.T) {
	var j *Jobs
	state := ""
	run := func(context.Context, deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
		return deadletter.ReplayReport{Replayed: 1}, nil
	}
	lease := func(ctx context.Context) (context.Context, func(), error) {
		return ctx, func() { state = j.List(nil)[0].State }, nil
	}
	j = New(run, lease, slog.New(slog.DiscardHandler))
	if _, err := j.Start("me", "", "", deadletter.ReplayOptions{}); err != nil {
		t.Fatal(err)
	}
	j.Wait()
	if ended := j.List(nil)[0]; state != Running || ended.State != Done || ended.Outcome.Replayed != 1 {
		t.Errorf("%s while others could not begin, then %+v", state, ended)
	}
}
