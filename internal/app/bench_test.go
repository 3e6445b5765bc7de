package app

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	sinklog "github.com/pacer/pacer/internal/sink/log"
	"github.com/pacer/pacer/internal/testservices"
)

// BenchmarkDaemon measures and profiles the way of a job: one daemon in this process, over real Kafka and Redis, sends b.N
// jobs of a campaign that may be sent at once. Run it with -benchtime 500000x and -cpuprofile.
func BenchmarkDaemon(b *testing.B) {
	type benchCase struct {
		name     string
		calls    int // at a time, over HTTP; 0: to discard
		overflow delivery.Overflow
		begin    func(*delivery.Campaign)
		// If the rate is limited, it is the speed; what a job costs is the figure.
		campaigns int           // 0: 1
		rate      delivery.Rate // zero: what nothing reaches
	}
	for _, bc := range []benchCase{
		{name: "http-64", calls: 64, overflow: delivery.OverflowBlock},
		{name: "overflow", begin: func(c *delivery.Campaign) { c.Status = delivery.StatusPaused }},
		{name: "discard"},
		{name: "block", overflow: delivery.OverflowBlock},
		{name: "http-256", calls: 256, overflow: delivery.OverflowBlock},
		{name: "one", rate: delivery.PerSecond(50_000)},
		{name: "campaigns", campaigns: 10_000, rate: delivery.PerSecond(5)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			services := benchServices(b)
			bc.campaigns = max(1, bc.campaigns)
			publish(b, services, bc.campaigns)
			to := sink.Config(sinklog.DefaultDiscard())
			if bc.calls > 0 {
				to = receiverOf(b, bc.calls)
			}
			entry, err := sink.Open(to, sink.Host{Version: Version, Logger: services.Log})
			if err != nil {
				b.Fatal(err)
			}
			campaigns := catalog.NewMemory()
			c := delivery.Campaign{
				ID: campaignID(0), Rate: cmp.Or(bc.rate, delivery.PerSecond(1_000_000)), Sink: "to", PriorityWeight: 1,
				Status: delivery.StatusActive, Overflow: bc.overflow,
			}
			first := c
			if bc.begin != nil {
				bc.begin(&first)
			}
			for i := range bc.campaigns {
				first.ID = campaignID(i)
				campaigns.PutCampaign(first)
			}
			set, err := shards.Connect(shards.Options{Addrs: []string{testservices.RedisAddr(b)}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = set.Close() })
			counter := &counted{all: make(chan struct{}), want: int64(b.N)}
			d, err := NewDaemon(Parts{
				Services: services, Redis: set, Catalog: campaigns, Sinks: map[string]sink.Entry{"to": entry},
				Registry:  prometheus.NewRegistry(),
				WrapSinks: func(inner pacer.Sinks) pacer.Sinks { counter.Sinks = inner; return counter },
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			meter(b, func() {
				go func() { ended <- d.RunToEnd(ctx) }()
				if bc.begin != nil {
					awaitLanes(b, services)
					campaigns.PutCampaign(c)
				}
				<-counter.all
			})
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
		})
	}
}

// counted closes all when want jobs have been delivered.
type counted struct {
	pacer.Sinks
	n    atomic.Int64
	want int64
	all  chan struct{}
}

func (c *counted) Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result {
	r := c.Sinks.Deliver(ctx, id, job)
	if r.Class == delivery.Delivered && c.n.Add(1) == c.want {
		close(c.all)
	}
	return r
}

// meter reports what a job costs, processors included.
func meter(b *testing.B, work func()) {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(growth)) // as a daemon does
	runtime.GC()
	cpu, began := processors(), time.Now()
	b.ReportAllocs()
	b.ResetTimer()
	work()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
	b.ReportMetric(float64((processors()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/job")
}

// processors is the processor time that this process has used.
func processors() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const benchPartitions = 2

// benchServices are topics of their own on the real broker.
func benchServices(b *testing.B) *Services {
	cfg, brokers := config.Default(), testservices.Kafka(b)
	prefix := testservices.Unique("bench")
	cfg.Kafka.Brokers, cfg.Kafka.TopicPrefix, cfg.Kafka.Lanes, cfg.Kafka.Group = brokers, prefix, 32, prefix
	cfg.Kafka.Topics = []string{testservices.Topic(b, brokers, prefix, benchPartitions)}
	cfg.Redis.KeyPrefix, cfg.DefaultSink, cfg.HTTP.Listen = prefix, "to", ""
	services := NewServices(cfg, slog.New(slog.DiscardHandler))
	if err := services.OpenKafka(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(services.Close)
	if _, err := requeue.EnsureTopics(b.Context(), services.Kafka, services.Topics, nil); err != nil {
		b.Fatal(err)
	}
	return services
}

// campaignID is the id of one of several campaigns.
func campaignID(i int) string { return testCampaign + strconv.Itoa(i) }

// publish writes b.N jobs with payloads of 200 bytes, of the campaigns in turn.
func publish(b *testing.B, s *Services, campaigns int) {
	producer := broker.NewProducer(broker.ProducerOptions{Client: s.Kafka})
	var at []broker.Partition
	for p := range benchPartitions {
		at = append(at, broker.Partition{Topic: s.Config.Kafka.Topics[0], ID: p})
	}
	payload := make([]byte, 200)
	jobs := func(yield func(delivery.Record, error) bool) {
		for i := range b.N {
			if !yield(record.New(campaignID(i%campaigns), "job-"+strconv.Itoa(i), payload), nil) {
				return
			}
		}
	}
	if _, err := producer.PublishTo(b.Context(), at, jobs, nil); err != nil {
		b.Fatal(err)
	}
}

// receiverOf is a sink with calls to a server in this process, whose processors count as well: take them off with a profile.
func receiverOf(b *testing.B, calls int) sink.Config {
	destination := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(destination.Close)
	cfg := sinkhttp.Default()
	cfg.URL, cfg.MaxInFlight = destination.URL, calls
	return cfg
}

// awaitLanes waits until all jobs lie in lanes.
func awaitLanes(b *testing.B, s *Services) {
	for {
		var sum int64
		lanes, err := s.Kafka.PartitionsOf(b.Context(), requeue.LaneTopic(s.Config.Kafka.TopicPrefix))
		if err != nil {
			b.Fatal(err)
		}
		ends, err := s.Kafka.Offsets(b.Context(), kafka.LastOffset, lanes...)
		if err != nil {
			b.Fatal(err)
		}
		for _, end := range ends {
			sum += end
		}
		if sum >= int64(b.N) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
