package test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	sinkkafka "github.com/pacer/pacer/internal/sink/kafka"
	"github.com/pacer/pacer/internal/testservices"
)

// openKafkaSink runs a sink that writes to a topic, until the test ends, and returns its router and the sink itself.
func openKafkaSink(t *testing.T, brokers []string, topic string, change func(*sinkkafka.Config)) (*sink.Router, *sinkkafka.Sink) {
	t.Helper()
	cfg := sinkkafka.Default()
	cfg.Brokers, cfg.Topic, cfg.Timeout = brokers, topic, 15*time.Second
	if change != nil {
		change(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	entry, err := sink.Open(cfg, sink.Host{Version: "1", Logger: log})
	noError(t, err)
	r := sink.New(sink.Options{Sinks: map[string]sink.Entry{"a": entry}, Logger: log, Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = r.Close()
	})
	return r, entry.Sink.(*sinkkafka.Sink)
}

// recordsOf reads a topic, and returns its records by the id of their job.
func recordsOf(t *testing.T, brokers []string, topic string, partitions int) map[string][]delivery.Record {
	t.Helper()
	client, err := broker.New(broker.Options{Brokers: brokers, Topics: []string{topic}})
	noError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found := map[string][]delivery.Record{}
	for p := range partitions {
		for r, err := range client.Scan(ctx, broker.Partition{Topic: topic, ID: p}, 0) {
			noError(t, err)
			id := r.Header(delivery.HeaderJobID)
			found[id] = append(found[id], r)
		}
	}
	return found
}

// deliverAll delivers jobs at once and returns the results by id.
func deliverAll(t *testing.T, r *sink.Router, jobs []*delivery.Job) map[string]delivery.Result {
	t.Helper()
	var mu sync.Mutex
	var calls sync.WaitGroup
	results := map[string]delivery.Result{}
	for _, j := range jobs {
		calls.Go(func() {
			res := r.Deliver(t.Context(), "a", j)
			mu.Lock()
			results[j.ID] = res
			mu.Unlock()
		})
	}
	calls.Wait()
	return results
}

// TestKafkaSink: a real broker accepts the sink's batches, each job once, keyed jobs in the partition that Kafka's own clients choose.
// Its refusals are classified like those of the stand-in in the sink's other tests.
func TestKafkaSink(t *testing.T) {
	t.Parallel()
	brokers := testservices.Kafka(t)
	const partitions, jobs, keys = 3, 3000, 7
	for _, compression := range []string{"none", "zstd"} {
		topic := testservices.Topic(t, brokers, "sink", partitions)
		r, _ := openKafkaSink(t, brokers, topic, func(c *sinkkafka.Config) { c.Compression = compression })
		var list []*delivery.Job
		for i := range jobs {
			j := &delivery.Job{ID: fmt.Sprint("j", i), Campaign: "spring", Payload: fmt.Appendf(nil, "payload %d", i)}
			if j.ContentType = "text/plain"; i%2 == 0 {
				j.Key = fmt.Appendf(nil, "key %d", i%keys)
			}
			list = append(list, j)
		}
		for id, res := range deliverAll(t, r, list) {
			if res.Took = 0; res != (delivery.Result{Class: delivery.Delivered}) {
				t.Fatalf("%s: %+v", id, res)
			}
		}
		found := recordsOf(t, brokers, topic, partitions)
		balancer := kafka.Murmur2Balancer{Consistent: true}
		for _, j := range list {
			got := found[j.ID]
			if len(got) != 1 || !bytes.Equal(got[0].Value, j.Payload) || !bytes.Equal(got[0].Key, j.Key) ||
				got[0].Header("content-type") != "text/plain" || got[0].Header(delivery.HeaderCampaign) != "spring" || time.Since(got[0].Time) > time.Minute {
				t.Fatalf("%s: %+v", j.ID, got)
			}
			if want := balancer.Balance(kafka.Message{Key: j.Key}, 0, 1, 2); len(j.Key) > 0 && got[0].Partition != want {
				t.Fatalf("%s is in partition %d, want %d", j.Key, got[0].Partition, want)
			}
		}
		if len(found) != jobs {
			t.Errorf("%d jobs, want %d", len(found), jobs)
		}
	}
}

// TestKafkaSinkRefused: what a real broker refuses.
func TestKafkaSinkRefused(t *testing.T) {
	t.Parallel()
	brokers := testservices.Kafka(t)
	entry := func(name, value string) kafka.ConfigEntry {
		return kafka.ConfigEntry{ConfigName: name, ConfigValue: value}
	}
	for _, tt := range []struct {
		name, topic, code string
		want              delivery.ResultClass
		checks            bool
	}{
		{"no such topic", testservices.Unique("sink.none"), "", delivery.Misconfigured, false},
		{"a compacted topic wants keys", testservices.Topic(t, brokers, "sink.compacted", 1, entry("cleanup.policy", "compact")), "Invalid Record", delivery.Permanent, true},
	} {
		r, k := openKafkaSink(t, brokers, tt.topic, nil)
		res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1", Campaign: "c", Payload: []byte("x")})
		if res.Class != tt.want || tt.code != "" && (res.Provider == nil || res.Provider.Code != tt.code) {
			t.Errorf("%s: %+v, %+v", tt.name, res, res.Provider)
		}
		if err := k.Check(t.Context()); (err == nil) != tt.checks || err != nil && !strings.HasPrefix(err.Error(), "topic: ") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// A batch is too large for the topic, and so is one record of it: the others are written without it.
	topic := testservices.Topic(t, brokers, "sink.small", 1, entry("max.message.bytes", "2000"))
	r, _ := openKafkaSink(t, brokers, topic, nil)
	var jobs []*delivery.Job
	for i := range 100 {
		size := 100
		if i == 40 {
			size = 5000
		}
		jobs = append(jobs, &delivery.Job{ID: fmt.Sprint("j", i), Campaign: "c", Payload: bytes.Repeat([]byte("x"), size)})
	}
	results := deliverAll(t, r, jobs)
	found := recordsOf(t, brokers, topic, 1)
	for id, res := range results {
		want, n := delivery.Delivered, 1
		if id == "j40" {
			want, n = delivery.Permanent, 0
		}
		if res.Class != want || len(found[id]) != n {
			t.Errorf("%s: %+v, %d times", id, res, len(found[id]))
		}
	}
}

// kafkaSinkLoad delivers jobs to a topic through a network that fails, each until it is delivered.
type kafkaSinkLoad struct {
	stop    func()
	workers sync.WaitGroup

	mu        sync.Mutex
	delivered int
	doubtful  map[string]int // answers by which a job may have been written, by id
}

const kafkaSinkTopic, kafkaSinkPartitions = "sink.load", 3

// loadKafkaSink starts workers that deliver one job after the other to a new topic of the brokers, over the network at addr.
func loadKafkaSink(t *testing.T, brokers []string, addr string) (load *kafkaSinkLoad, topic string) {
	t.Helper()
	topic = testservices.Topic(t, brokers, kafkaSinkTopic, kafkaSinkPartitions)
	r, _ := openKafkaSink(t, []string{addr}, topic, func(c *sinkkafka.Config) { c.Timeout = time.Second })
	ctx, cancel := context.WithCancel(context.Background())
	load = &kafkaSinkLoad{stop: cancel, doubtful: map[string]int{}}
	for w := range 4 {
		load.workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				load.one(t, r, fmt.Sprintf("w%d-%d", w, i))
				time.Sleep(25 * time.Millisecond)
			}
		})
	}
	t.Cleanup(func() { cancel(); load.workers.Wait() })
	load.goesOn(t)
	return load, topic
}

// goesOn waits until more jobs have been delivered.
func (l *kafkaSinkLoad) goesOn(t *testing.T) {
	t.Helper()
	delivered := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.delivered
	}
	for begun, n := time.Now(), delivered(); delivered() < n+20; time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("no job was delivered for a minute")
		}
	}
}

// one delivers a job, however often it has to be tried.
func (l *kafkaSinkLoad) one(t *testing.T, r *sink.Router, id string) {
	for range 600 {
		res := r.Deliver(context.Background(), "a", &delivery.Job{ID: id, Campaign: "c", Payload: []byte(id)})
		l.mu.Lock()
		switch {
		case res.Class == delivery.Delivered:
			l.delivered++
			l.mu.Unlock()
			return
		case res.Class == delivery.Temporary && res.By == delivery.ByNobody:
			l.doubtful[id]++
		case res.Class != delivery.Unreachable && res.Class != delivery.Temporary:
			t.Errorf("%s: %+v", id, res)
		}
		l.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s was not delivered in a minute", id)
}

// end stops the load and looks at the topic: every job that was delivered is in it, and more than once at most where a call
// ended in doubt.
func (l *kafkaSinkLoad) end(t *testing.T, brokers []string, topic string) {
	t.Helper()
	l.stop()
	l.workers.Wait()
	found := recordsOf(t, brokers, topic, kafkaSinkPartitions)
	doubts, duplicates := 0, 0
	for id, records := range found {
		doubts += l.doubtful[id]
		duplicates += len(records) - 1
		if len(records) > 1+l.doubtful[id] {
			t.Errorf("%s was written %d times, and ended in doubt %d times", id, len(records), l.doubtful[id])
		}
	}
	if len(found) != l.delivered || doubts == 0 {
		t.Errorf("%d jobs were delivered and %d are in the topic; %d answers were in doubt", l.delivered, len(found), doubts)
	}
	t.Logf("kafka sink: %d jobs, %d answers in doubt, %d duplicates", l.delivered, doubts, duplicates)
}
