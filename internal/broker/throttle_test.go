package broker

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

const throttleFor = 300 * time.Millisecond

// A fetch whose answer a quota has kept back waits as told, with all others of that broker, and then brings the records. Other requests
// go on.
func TestAFetchWaitsAsTold(t *testing.T) {
	t.Parallel()
	cluster, log := kafkatest.Cluster(t, kfake.SeedTopics(2, "jobs")), &kafkatest.LogBook{}
	client := dial(t, Options{Brokers: cluster.ListenAddrs(), Logger: log.Logger()})
	records := All([]delivery.Record{{Value: []byte("x")}, {Value: []byte("y")}})
	if n, err := client.publish(t, "jobs", records); n != 2 {
		t.Fatal(err)
	}
	var fetched atomic.Int64
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if fetched.Add(1) > 1 {
			return nil, nil, false
		}
		answer := r.ResponseKind().(*kmsg.FetchResponse)
		answer.Version, answer.ThrottleMillis = r.GetVersion(), int32(throttleFor.Milliseconds())
		return answer, nil, true
	})
	begun, told := time.Now(), atomic.Int64{}
	read := func(partition int) {
		out, err := client.Fetch(t.Context(), FetchRequest{
			Partition: Partition{"jobs", partition}, MaxBytes: 1 << 20, MaxWait: time.Second, Throttled: func() { told.Add(1) },
		}, func(*delivery.Record) error { return nil })
		if took := time.Since(begun); err != nil || out.Records != 1 || took < throttleFor || took > 2*throttleFor {
			t.Errorf("partition %d: %+v after %v: %v", partition, out, took, err)
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() { read(0) })
	kafkatest.Eventually(t, "the broker throttles", func() bool { return client.Throttled(fetches) > 0 })
	reading.Go(func() { read(1) })
	if _, err := client.Offsets(t.Context(), Latest, Partition{Topic: "jobs"}); err != nil || time.Since(begun) > throttleFor {
		t.Errorf("another request after %v: %v", time.Since(begun), err)
	}
	reading.Wait()
	if is := client.Throttled(fetches); is < throttleFor-50*time.Millisecond || is > throttleFor || client.Throttled(others) > 0 || told.Load() != 1 {
		t.Errorf("throttled for %v, told %d times", is, told.Load())
	}
	if log.Count("WARN") != 1 || fetched.Load() != 3 {
		t.Errorf("%d fetches, logged %q", fetched.Load(), log.Lines(""))
	}
}

// throttling is a transport whose answers to writes tell to wait.
type throttling struct{ kafka.RoundTripper }

func (s throttling) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(ctx, addr, request)
	if written, ok := answer.(*produceapi.Response); ok {
		written.ThrottleTimeMs = int32(throttleFor.Milliseconds())
	}
	return answer, err
}

// Writes wait as well, without an error, even for longer than a request may take.
func TestWritesWaitAsTold(t *testing.T) {
	t.Parallel()
	client := dial(t, Options{
		Brokers: kafkatest.Cluster(t, kfake.SeedTopics(1, "jobs")).ListenAddrs(),
		Wrap:    func(inner kafka.RoundTripper) kafka.RoundTripper { return throttling{inner} },
	})
	begun, records := time.Now(), All(make([]delivery.Record, 1))
	for i := range 3 {
		if _, err := client.publish(t, "jobs", records); err != nil {
			t.Fatal(err)
		}
		if took, least := time.Since(begun), time.Duration(i)*throttleFor; took < least || took > least+throttleFor {
			t.Errorf("batch %d was written after %v", i, took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), throttleFor/3)
	defer cancel()
	b := &batch{to: Partition{Topic: "jobs"}}
	if client.send(ctx, []*batch{b}); !NotWritten(b.err) {
		t.Errorf("a batch that waits and is given up: %v", b.err)
	}
}

// While a broker throttles, intake lets lanes and timers pass, not for ever; otherwise it does not wait for them.
func TestIntakeYieldsWhileThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, log := gate{fetches, 1}, &kafkatest.LogBook{}
		c := &throttle{log: log.Logger(), until: map[gate]time.Time{}, urgent: map[gate]int{}}
		begun := time.Now()
		waits := func(want time.Duration) {
			t.Helper()
			if _, err := c.wait(t.Context(), at, true); err != nil || time.Since(begun).Round(100*time.Millisecond) != want {
				t.Errorf("it went on after %v, want %v: %v", time.Since(begun), want, err)
			}
		}
		done := c.hurry(at)
		waits(0)
		c.note(at, 1000)
		go func() {
			time.Sleep(1500 * time.Millisecond)
			done()
		}()
		waits(1500 * time.Millisecond)
		defer c.hurry(at)()
		c.note(at, 1000)
		waits(2500*time.Millisecond + maxYield)
		time.Sleep(throttled)
		begun = time.Now()
		waits(0)
		if log.Count("WARN") != 1 || c.total[fetches] != 2*time.Second {
			t.Errorf("throttled for %v: %q", c.total[fetches], log.Lines(""))
		}
	})
}
