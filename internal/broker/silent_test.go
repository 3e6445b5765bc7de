package broker

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// swallowing is a listener whose connections swallow what the broker answers once they are frozen; new ones do not.
type swallowing struct {
	net.Listener
	mu   sync.Mutex
	open []*swallowed
}

type swallowed struct {
	net.Conn
	frozen atomic.Bool
}

func (s *swallowed) Write(p []byte) (int, error) {
	if s.frozen.Load() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

func (s *swallowing) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, &swallowed{Conn: conn})
	return s.open[len(s.open)-1], nil
}

// A broker whose connections are frozen costs the requests that are under way their time; the next ones take new connections.
func TestFrozenConnectionsAreMadeAnew(t *testing.T) {
	t.Parallel()
	const readers = 6
	way := &swallowing{}
	cluster := kafkatest.Cluster(t, kfake.SeedTopics(readers, "jobs"), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		listener, err := net.Listen(network, address)
		way.Listener = listener
		return way, err
	}))
	client := dial(t, Options{Brokers: cluster.ListenAddrs()})
	read := func(partition int, wait time.Duration) error {
		_, err := client.Fetch(t.Context(), FetchRequest{Partition: Partition{"jobs", partition}, MaxBytes: 1 << 20, MaxWait: wait}, nil)
		return err
	}
	each := func(what func(partition int)) {
		var reading sync.WaitGroup
		for p := range readers {
			reading.Go(func() { what(p) })
		}
		reading.Wait()
	}
	each(func(p int) { _ = read(p, 200*time.Millisecond) })
	way.mu.Lock()
	for _, conn := range way.open {
		conn.frozen.Store(true)
	}
	way.mu.Unlock()
	begun := time.Now()
	if read(0, 0) == nil {
		t.Fatal("a frozen connection has answered")
	}
	each(func(p int) {
		if err := read(p, 0); err != nil {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
