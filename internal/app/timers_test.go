package app

import (
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// Jobs in a timer that is no longer configured are read by no daemon. The log says so.
func TestATimerThatIsNotReadIsLogged(t *testing.T) {
	t.Parallel()
	parts, log := testParts(t)
	parts.Topics.Timers = parts.Topics.Timers[:1]
	if err := parts.OpenKafka(); err != nil { // a daemon's client names the topics of its configuration
		t.Fatal(err)
	}
	writer := kafka.Writer{Addr: kafka.TCP(parts.Config.Kafka.Brokers...), Topic: "pacer.timer.30s", BatchTimeout: time.Millisecond}
	defer func() { _ = writer.Close() }()
	if err := writer.WriteMessages(t.Context(), kafka.Message{Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	_, stop := start(t, parts)
	kafkatest.Eventually(t, "it takes jobs", func() bool { return strings.Contains(log.String(), "taking jobs") })
	log.has(t, "its jobs are not read; add ", 1)
	log.has(t, "topic pacer.timer.30s: ", 1)
	stop()
}
