package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// Jobs in a timer that is no longer configured are read by no daemon. The log says so.
func TestATimerThatIsNotReadIsLogged(t *testing.T) {
	t.Parallel()
	log := &shared{}
	parts := testParts(t, slog.New(slog.NewTextHandler(log, nil)))
	parts.Topics.Timers = parts.Topics.Timers[:1]
	d, err := NewDaemon(parts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	kafkatest.Eventually(t, "the other timers are named", func() bool {
		return strings.Count(log.String(), "its jobs are not read; add ") == 4 && strings.Contains(log.String(), "topic pacer.timer.30s: ")
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
