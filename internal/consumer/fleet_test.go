package consumer

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// fleet is a broker and daemons, in a time of their own, and the receiver of their jobs.
type fleet struct {
	*rig
	random    *rand.Rand // of the test's goroutine
	network   kfake.VirtualNetwork
	published int

	mu      sync.Mutex
	handled map[string][]handling // by the id of the job
}

// handling is a job that was sent, or that begins to move to a lane.
type handling struct {
	by   *member
	at   time.Time
	sent bool
}

// member is a daemon that sends what it has read, moves it to a lane, or gives it back.
type member struct {
	*running
	*fake
	fleet    *fleet
	random   *rand.Rand
	state    string // lossy: some answers are lost; cut off from the broker; dead
	until    time.Time
	troubles [][2]time.Time
}

func newFleet(t *testing.T, seed uint64) *fleet {
	f := &fleet{random: rand.New(rand.NewPCG(seed, 0)), handled: map[string][]handling{}, rig: newRig(t, []string{"127.0.0.1:9092"})}
	f.opt.KeepDelivered, f.opt.sweepEvery = false, 2*time.Second
	kafkatest.Cluster(t, kfake.Ports(9092), kfake.ListenFn(f.network.Listen), kfake.SeedTopics(3, f.jobs()), kfake.SeedTopics(2, f.opt.LaneTopic))
	f.admin = f.by(func(ctx context.Context, _ kafka.Request, send sending) (kafka.Response, error) { return send(ctx) })
	return f
}

// by is a client whose requests go a way.
func (f *fleet) by(w way) *broker.Client {
	transport := &kafka.Transport{Dial: f.network.DialContext, MetadataTTL: time.Second}
	f.t.Cleanup(transport.CloseIdleConnections)
	return f.dial(broker.Options{Wrap: func(kafka.RoundTripper) kafka.RoundTripper { return wayOf{transport, w} }})
}

// start starts a member.
func (f *fleet) start() *member {
	m := &member{fleet: f, fake: keeping(all), random: rand.New(rand.NewPCG(f.random.Uint64(), 0))}
	m.refuse = func(*delivery.Job) bool { return m.random.IntN(4) == 0 }
	m.running = f.rig.start(m, func(o *Options) { o.Client = f.by(m.way) })
	go retry.Every(f.t.Context(), 20*time.Millisecond, m.work)
	return m
}

// befall has a trouble befall the member. It owns nothing any more when a session is over.
func (m *member) befall(is string, lasts time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.until = is, time.Now().Add(lasts)
	m.troubles = append(m.troubles, [2]time.Time{time.Now(), time.Now().Add(min(lasts, sessionTimeout))})
}

// is reports whether the member is in a trouble. It needs the lock.
func (m *member) is(in string) bool { return m.state == in && time.Now().Before(m.until) }

func (m *member) way(ctx context.Context, _ kafka.Request, send sending) (answer kafka.Response, err error) {
	m.mu.Lock()
	apart, lost := m.is("cut") || m.is("dead"), m.is("lossy") && m.random.IntN(4) == 0
	m.mu.Unlock()
	if apart {
		time.Sleep(50 * time.Millisecond)
	} else if answer, err = send(ctx); !lost {
		return answer, err
	}
	return nil, io.ErrUnexpectedEOF
}

// work takes up to three jobs at a time, and makes room.
func (m *member) work(now time.Time) {
	n, r := 0, m.reading.Load()
	m.end(func(*delivery.Job) bool { n++; return n <= 3 && !m.is("dead") && m.Owns(now) }, m.take)
	for c := 0; r != nil && c < 4*len(r.held); c++ {
		if s := r.held[c/4].source.Load(); s != nil {
			s.GrantCapacity(fmt.Sprint("c", c%4), 5)
		}
	}
}

// take does something with a job. It needs the lock.
func (m *member) take(j *delivery.Job) {
	what := m.random.IntN(10)
	if _, left := j.Source.Revoked(); left || revokedOf(j) {
		return
	}
	if what < 2 {
		giveBack(j)
		return
	}
	moves := what < 6 && j.From == delivery.FromIngress
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.handled[j.ID] = append(m.fleet.handled[j.ID], handling{m, time.Now(), !moves})
	took := time.Duration(m.random.IntN(300)) * time.Millisecond
	go func() {
		if !moves {
			time.Sleep(took)
		} else if !m.move(j) {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.is("dead") {
			j.Settle(delivery.OutcomeDelivered)
		}
	}()
}

// move writes a job to a lane until that is acknowledged. It reports false if its partition has left before that.
func (m *member) move(j *delivery.Job) (acked bool) {
	chunk := broker.Chunk[*delivery.Job]{To: partition{Topic: m.fleet.opt.LaneTopic, ID: int(j.Offset>>4) % 2}, Items: []*delivery.Job{j}}
	w := broker.Writer[*delivery.Job]{
		Client: m.opt.Client, Acked: func([]*delivery.Job) { acked = true }, Failed: func(broker.Chunk[*delivery.Job], error) {},
		Encode: func(j *delivery.Job, now time.Time) delivery.Record {
			return new(record.Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}, now)
		},
	}
	for over := false; !over; time.Sleep(100 * time.Millisecond) {
		if w.Write(context.Background(), []broker.Chunk[*delivery.Job]{chunk}); acked {
			return true
		}
		m.mu.Lock()
		_, left := j.Source.Revoked()
		over = left || m.is("dead")
		m.mu.Unlock()
	}
	return false
}

// step has something happen.
func (f *fleet) step(alive []*member) []*member {
	within := func(seconds int) time.Duration { return time.Duration(f.random.IntN(seconds*1000)) * time.Millisecond }
	defer func() { time.Sleep(within(3)) }()
	what := f.random.IntN(12)
	if len(alive) == 0 || what == 0 && len(alive) < 3 {
		return append(alive, f.start())
	}
	one := f.random.IntN(len(alive))
	switch m := alive[one]; what {
	case 1, 2:
		if what == 2 {
			m.befall("dead", time.Hour)
		}
		m.cancel()
		return slices.Delete(alive, one, one+1)
	case 3:
		m.befall("cut", within(20))
	case 4:
		m.befall("lossy", within(3))
	case 5:
		time.Sleep(within(20))
	default:
		var records []delivery.Record
		for range f.random.IntN(40) {
			records = append(records, record.New(fmt.Sprint("c", f.random.IntN(4)), fmt.Sprint("j", f.published), nil))
			f.published++
		}
		if _, err := broker.NewProducer(broker.ProducerOptions{Client: f.admin}).Publish(f.t.Context(), f.jobs(), broker.All(records), nil); err != nil {
			f.t.Fatal(err)
		}
	}
	return alive
}

// check checks what the receiver got. A job is sent twice only if a member that had it in hand was in trouble then.
func (f *fleet) check() {
	sent := 0
	for id, list := range f.handled {
		times, excused := 0, false
		for _, h := range list {
			if h.sent {
				times++
			}
			for _, trouble := range h.by.troubles {
				excused = excused || h.at.After(trouble[0].Add(-time.Second)) && h.at.Before(trouble[1].Add(time.Second))
			}
		}
		if sent += min(times, 1); times > 1 && !excused {
			f.t.Errorf("%s was sent %d times without need: %v", id, times, list)
		}
	}
	if sent != f.published {
		f.t.Errorf("%d of %d jobs were sent", sent, f.published)
	}
	partitions, _ := f.admin.PartitionsOf(f.t.Context(), f.opt.topics()...)
	ends, err := f.admin.Offsets(f.t.Context(), broker.Latest, partitions...)
	for at, end := range ends {
		if n := f.committed(at.Topic, at.ID); n != end || err != nil {
			f.t.Errorf("%s ends at %d, %v, and %d is committed", at, end, err, n)
		}
	}
	f.said(0, "level=ERROR") // nothing is wrong with the logs
}

// TestFleet: members join, leave, are killed, and lose their connections and their answers; partitions move. No job is lost, and none sent
// twice without need.
func TestFleet(t *testing.T) {
	testservices.Simulation(t)
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, seed)
				alive := f.step(nil)
				for range 15 {
					alive = f.step(alive)
				}
				if len(alive) == 0 {
					f.start()
				}
				time.Sleep(3 * time.Minute)
				f.check()
			})
		})
	}
}
