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

func TestRelayOnARealBroker(t *testing.T) {
	t.Parallel()
	r, spec := realRelay(t, 8)
	const each = 2_000
	sources := []*fakeSource{newSource("pacer.jobs/0"), newSource("pacer.jobs/1"), newSource("pacer.lanes/3")}
	due := time.Now().Add(10 * time.Minute)
	for i := range int64(each) {
		for n, s := range sources {
			job := s.job(i, fmt.Sprintf("campaign-%d", i%20))
			job.Origin.Partition = n
			to := lane
			switch i % 10 {
			case 8:
				to = delivery.Reroute{Kind: delivery.ToTimer, Reason: delivery.ReasonRetry, Due: due}
			case 9:
				to = dead
			}
			r.Put(job, to)
		}
	}
	total := func() (n int) {
		for _, s := range sources {
			n += s.count()
		}
		return n
	}
	kafkatest.Eventually(t, "everything settled", func() bool { return total() == each*len(sources) })

	origins := make(map[string]bool)
	lanesOf := make(map[string]int)
	for topic, want := range map[string]int{
		LaneTopic(spec.Prefix): each * 3 * 8 / 10, TimerTopic(spec.Prefix, 5*time.Minute): each * 3 / 10, DeadTopic(spec.Prefix): each * 3 / 10,
	} {
		records := brokertest.ReadAll(t, r.opts.Client, topic)
		if len(records) != want {
			t.Errorf("%d records in %s, want %d", len(records), topic, want)
		}
		for _, rec := range records {
			origins[rec.Header(delivery.HeaderOrigin)] = true
			if topic != LaneTopic(spec.Prefix) {
				continue
			}
			campaign := rec.Header(delivery.HeaderCampaign)
			if l, ok := lanesOf[campaign]; ok && l != rec.Partition {
				t.Fatalf("campaign %s lies in lanes %d and %d", campaign, l, rec.Partition)
			}
			lanesOf[campaign] = rec.Partition
			if rec.Header(delivery.HeaderHops) != "1" {
				t.Fatalf("hops %q", rec.Header(delivery.HeaderHops))
			}
		}
	}
	if len(origins) != each*len(sources) {
		t.Errorf("%d distinct jobs written, want %d", len(origins), each*len(sources))
	}
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
