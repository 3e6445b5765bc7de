package sink_test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/kafka"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

var kafkaPlay = play{
	setting: "brokers: ",
	acts:    []act{takes, refuses, fails, distrusts, hangs, resets},
	shorten: func(c sink.Config, d time.Duration) { c.(*kafka.Config).Timeout = min(d, 15*time.Second) },
	divert:  func(c sink.Config, addr string) { c.(*kafka.Config).Brokers = []string{addr} },
	start: func(t *testing.T, treat func(string, int) act) stage {
		counts := newTally()
		b := sinktest.StartBroker(t, sinktest.BrokerOptions{
			Topic: "orders.paced", Partitions: 1,
			Treat: func(_ int32, records []sinktest.Written) sinktest.Treatment {
				how := sinktest.Treatment{}
				for _, w := range records {
					switch treat(w.ID, counts.add(w.ID)) {
					case refuses:
						how.Code = 10 // MESSAGE_TOO_LARGE
					case fails:
						how.Code = 19 // NOT_ENOUGH_REPLICAS
					case distrusts:
						how.Code = 29 // TOPIC_AUTHORIZATION_FAILED
					case hangs:
						how.Hang = true
					case resets:
						how.Reset = true
					}
				}
				return how
			},
		})
		c := kafka.Default()
		c.Brokers, c.Topic, c.TLS, c.CAFile = []string{b.Addr}, "orders.paced", true, b.CAFile
		return stage{
			config: c, received: counts.of,
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{ID: recipient, Campaign: "spring", Payload: []byte("hello " + recipient)}
			},
		}
	},
}
