package test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// clientQuotas sets quotas of clients that call themselves as pacer does.
func (s *stack) clientQuotas(quotas map[string]float64) {
	s.t.Helper()
	entry := kafka.AlterClientQuotaEntry{Entities: []kafka.AlterClientQuotaEntity{{EntityType: "client-id", EntityName: "pacer"}}}
	for name, value := range quotas {
		entry.Ops = append(entry.Ops, kafka.AlterClientQuotaOps{Key: name, Value: value})
	}
	answer, err := s.client.AlterClientQuotas(context.Background(), &kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{entry}})
	if err != nil || answer.Entries[0].Error != nil {
		s.t.Fatal(err, answer)
	}
}

// TestQuotasOfKafkaAreObeyed: under quotas of Kafka, pacer takes what they allow, and what is due goes before what is new.
func TestQuotasOfKafkaAreObeyed(t *testing.T) {
	t.Parallel()
	const (
		rate     = 200_000 // bytes per second, in and out
		size     = 1000    // of a payload
		seconds  = 20
		backlog  = (seconds + 20) * rate / size // a window of quotas is 11 s
		share    = 0.25                         // of what Kafka allows, at least, also beside other tests; alone it is 0.9
		bystands = 20                           // per second
	)
	s := newStack(t, stackOptions{partitions: 6, brokers: freshKafka(t, "").brokers})
	s.campaign("all", 1e6)
	s.campaign("due", bystands)
	jobs := ofCampaign("all", 0, backlog)
	for i := range jobs {
		jobs[i].payload = make([]byte, size)
	}
	d := s.started("one")
	s.publish(ofCampaign("due", 0, 2*bystands*seconds))
	s.await(10*time.Second, "jobs that wait in lanes", func() bool { return s.receiver.count("due") > 2*bystands })
	s.clientQuotas(map[string]float64{"consumer_byte_rate": rate, "producer_byte_rate": rate, "request_percentage": 20})
	begun := s.receiver.now()
	for batch := range slices.Chunk(jobs, 6*16) { // as large as a producer makes them that lingers for a moment
		s.publish(batch)
	}
	time.Sleep(time.Until(s.receiver.began.Add(time.Duration(begun) * time.Microsecond).Add(seconds * time.Second)))
	got, others := 0, 0
	for _, a := range s.receiver.arrivals("") {
		switch {
		case a.at < begun:
		case a.campaign == "all":
			got++
		default:
			others++
		}
	}
	t.Logf("%d kB/s of %d, %d of %d of the other campaign; throttled for %.1f s of fetches, %.1f of writes, %.1f of others",
		got*size/seconds/1000, rate/1000, others, bystands*seconds, d.metric(`pacer_kafka_throttle_seconds{request="fetch"}`),
		d.metric(`pacer_kafka_throttle_seconds{request="produce"}`), d.metric(`pacer_kafka_throttle_seconds{request="other"}`))
	if float64(got*size) < share*rate*seconds || float64(others) < share*bystands*seconds {
		t.Error("far less than Kafka allows")
	}
	if d.log.lines("level=WARN", "kafka throttles this daemon") != 1 || d.metric(`pacer_kafka_throttle_seconds{request="fetch"}`) == 0 {
		t.Errorf("logged %s", d.log.tail(20))
	}
}
