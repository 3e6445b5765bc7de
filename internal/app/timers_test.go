package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// Jobs in a timer that is no longer configured are read by no daemon. The log says so.
func TestATimerThatIsNotReadIsLogged(t *testing.T) {
	t.Parallel()
	log := &shared{}
	parts := testParts(t, slog.New(slog.NewTextHandler(log, nil)))
	parts.Topics.Timers = parts.Topics.Timers[:1]
	writer := kafka.Writer{Addr: kafka.TCP(parts.Config.Kafka.Brokers...), Topic: "pacer.timer.30s", BatchTimeout: time.Millisecond}
	defer func() { _ = writer.Close() }()
	if err := writer.WriteMessages(t.Context(), kafka.Message{Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	d, err := NewDaemon(parts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	kafkatest.Eventually(t, "the timer that has a job is named", func() bool { return strings.Contains(log.String(), "taking jobs") })
	if strings.Count(log.String(), "its jobs are not read; add ") != 1 || !strings.Contains(log.String(), "topic pacer.timer.30s: ") {
		t.Error(log.String())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
