package requeue

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// realRelay starts a relay on the shared broker.
func realRelay(t testing.TB, lanes int) (*Relay, TopicSpec) {
	t.Helper()
	client := brokertest.Dial(t, broker.Options{Brokers: testservices.Kafka(t)})
	spec := smallSpec(ownedPrefix(t, client))
	spec.Lanes = lanes
	if _, err := EnsureTopics(t.Context(), client, spec, nil); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{Client: client, Topics: TopicSpec{Prefix: spec.Prefix, Lanes: lanes}})
	return r, spec
}

// TestALargeRecordThatCompressesFits: a record that was only as small as its topic demands because its producer compressed
// it is written whole to a lane, a timer and the dead letters with default limits.
func TestALargeRecordThatCompressesFits(t *testing.T) {
	t.Parallel()
	r, spec := realRelay(t, 2)
	payload := []byte("[")
	for i := 0; len(payload) < 3<<20; i++ {
		payload = fmt.Appendf(payload, `{"id":%d,"name":"customer %d","city":"Hamburg","consent":true},`, i, i%7919)
	}
	payload[len(payload)-1] = ']'
	s := newSource("pacer.jobs/0")
	for i, to := range []delivery.Reroute{lane, timer, dead} {
		job := s.job(int64(i), "spring")
		job.Payload = payload
		r.Put(job, to)
	}
	kafkatest.Eventually(t, "everything settled", func() bool { return s.count() == 3 })
	for _, topic := range []string{LaneTopic(spec.Prefix), TimerTopic(spec.Prefix, 5*time.Second), DeadTopic(spec.Prefix)} {
		if records := brokertest.ReadAll(t, r.opts.Client, topic); len(records) != 1 || !bytes.Equal(records[0].Value, payload) {
			t.Errorf("%d records in %s, or a payload that differs", len(records), topic)
		}
	}
}
