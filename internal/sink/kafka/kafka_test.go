package kafka

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) {
	// kafka-go keeps a goroutine for each connection until it has closed.
	goleak.VerifyTestMain(m)
}

const topic = "orders.paced"

// open opens a sink for the broker, and runs it until the test ends.
func open(t *testing.T, b *sinktest.Broker, change func(*Config)) *Sink {
	t.Helper()
	cfg := Default()
	cfg.Brokers, cfg.Topic, cfg.TLS, cfg.Timeout = []string{b.Addr}, topic, true, 15*time.Second
	cfg.Certificates = access.Certificates{CAFile: b.CAFile}
	if change != nil {
		change(cfg)
	}
	s, err := New(cfg, base.Host{Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job(id string) *delivery.Job {
	return &delivery.Job{ID: id, Campaign: "spring", Payload: []byte("payload of " + id)}
}

// TestRecord: the value, the key and the headers of the job's own record, its id and campaign, and none of what pacer keeps there. The key
// may be made by a template, and is in the partition where other clients of Kafka write it.
func TestRecord(t *testing.T) {
	t.Parallel()
	const partitions = 7
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{Topic: topic, Partitions: partitions})
	for name, tt := range map[string]struct{ compression, template, want string }{
		"plain": {plain, "", "user-7"}, "compressed": {zstd, "", "user-7"},
		"templated": {plain, `{{ .Campaign }}/{{ .Header "tenant" }}`, "spring/b"}, "without a key": {plain, `{{ .Header "nothing" }}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, b, func(c *Config) { c.Compression, c.Key = tt.compression, tt.template })
			j := job(name)
			j.Key, j.ContentType, j.TraceParent = []byte("user-7"), "text/x", "00-1-2-01"
			j.Headers = []delivery.Header{{Key: "tenant", Value: []byte("acme")}, {Key: "ce_id", Value: []byte("e1")}, {Key: "tenant", Value: []byte("b")}}
			if res := s.Deliver(t.Context(), j, nil); res != (delivery.Result{Class: delivery.Delivered}) {
				t.Fatalf("%+v", res)
			}
			seen := b.Seen()
			r := seen[len(seen)-1]
			var headers []string
			for _, h := range r.Headers {
				headers = append(headers, h.Key+"="+string(h.Value))
			}
			want := []string{"tenant=acme", "ce_id=e1", "tenant=b", "content-type=text/x", "traceparent=00-1-2-01", "pacer-job-id=" + name, "pacer-campaign=spring"}
			if string(r.Key) != tt.want || (r.Key == nil) != (tt.want == "") || !bytes.Equal(r.Value, j.Payload) || !slices.Equal(headers, want) {
				t.Errorf("key %q, value %q, headers %q", r.Key, r.Value, headers)
			}
			if want := kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Key: r.Key}, partitions); r.Key != nil && int(r.Partition) != want {
				t.Errorf("partition %d, others write it to %d", r.Partition, want)
			}
		})
	}
	s := open(t, b, func(c *Config) { c.Key = `{{ .JSON.user }}` })
	if res := s.Deliver(t.Context(), job("x"), nil); res.Class != delivery.Permanent || !strings.Contains(res.Detail, "key") {
		t.Errorf("a key that cannot be made: %+v", res)
	}
}

// TestClasses: what each answer of a broker means, whether or not the record was written.
func TestClasses(t *testing.T) {
	t.Parallel()
	var how atomic.Pointer[sinktest.Treatment]
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{Topic: topic, Partitions: 1, Treat: func(int32, []sinktest.Written) sinktest.Treatment { return *how.Load() }})
	for _, tt := range []struct {
		code int16
		want delivery.ResultClass
	}{
		{0, delivery.Delivered},
		{10, delivery.Permanent},     // MESSAGE_TOO_LARGE
		{18, delivery.Permanent},     // RECORD_LIST_TOO_LARGE
		{87, delivery.Permanent},     // INVALID_RECORD
		{32, delivery.Permanent},     // INVALID_TIMESTAMP
		{3, delivery.Misconfigured},  // UNKNOWN_TOPIC_OR_PARTITION
		{17, delivery.Misconfigured}, // INVALID_TOPIC_EXCEPTION
		{29, delivery.Misconfigured}, // TOPIC_AUTHORIZATION_FAILED
		{31, delivery.Misconfigured}, // CLUSTER_AUTHORIZATION_FAILED
		{44, delivery.Misconfigured}, // POLICY_VIOLATION
		{76, delivery.Misconfigured}, // UNSUPPORTED_COMPRESSION_TYPE
		{19, delivery.Temporary},     // NOT_ENOUGH_REPLICAS
		{20, delivery.Temporary},     // NOT_ENOUGH_REPLICAS_AFTER_APPEND
		{7, delivery.Temporary},      // REQUEST_TIMED_OUT
		{56, delivery.Temporary},     // KAFKA_STORAGE_ERROR
		{2, delivery.Temporary},      // CORRUPT_MESSAGE
		{-1, delivery.Temporary},     // UNKNOWN_SERVER_ERROR
		{89, delivery.Temporary},     // THROTTLING_QUOTA_EXCEEDED
	} {
		t.Run(fmt.Sprint(tt.code), func(t *testing.T) {
			s := open(t, b, nil)
			before := b.Kept(topic)
			how.Store(&sinktest.Treatment{Code: tt.code})
			res := s.Deliver(t.Context(), job("x"), nil)
			if res.Class != tt.want || (res.Provider == nil) != (tt.code == 0) || (res.Detail == "") != (tt.code == 0) {
				t.Errorf("%+v, want %s", res, tt.want)
			}
			if doubt := map[int16]bool{20: true, 7: true, 56: true, -1: true}[tt.code]; strings.Contains(res.Detail, "may have been written") != doubt {
				t.Errorf("detail %q", res.Detail)
			}
			if got := b.Kept(topic) - before; (got == 1) != (tt.want == delivery.Delivered) {
				t.Errorf("%d were written", got)
			}
			how.Store(&sinktest.Treatment{})
			if res := s.Deliver(t.Context(), job("x"), nil); res.Class != delivery.Delivered {
				t.Errorf("afterwards: %+v", res)
			}
		})
	}
}

// TestOneBadRecord: a batch that is refused for one of its records costs the others nothing. At a slow broker there is no time to find out
// which it is, and none of the others is given up for it.
func TestOneBadRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code int16
		slow time.Duration
	}{"too large": {10, 0}, "not valid": {87, 0}, "slowly": {87, time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sinktest.StartBroker(t, sinktest.BrokerOptions{Topic: topic, Partitions: 1, Treat: func(_ int32, records []sinktest.Written) (how sinktest.Treatment) {
				if slices.ContainsFunc(records, func(w sinktest.Written) bool { return strings.HasPrefix(w.ID, "bad") }) {
					time.Sleep(tt.slow)
					how.Code = tt.code
				}
				return how
			}})
			s := open(t, b, func(c *Config) {
				if c.Linger = 200 * time.Millisecond; tt.slow > 0 {
					c.Linger, c.Timeout = 500*time.Millisecond, 3*time.Second
				}
			})
			jobs := []*delivery.Job{job("bad-1"), job("bad-2")}
			for i := range 40 {
				jobs = append(jobs, job(fmt.Sprint(i)))
			}
			for i, res := range sinktest.All(t, s, jobs) {
				id := jobs[i].ID
				want := []delivery.ResultClass{delivery.Delivered}
				switch bad := strings.HasPrefix(id, "bad"); {
				case bad && tt.slow > 0:
					continue // it may be anything
				case bad:
					want = []delivery.ResultClass{delivery.Permanent}
				case tt.slow > 0:
					want = append(want, delivery.Unreachable)
				}
				if !slices.Contains(want, res.Class) {
					t.Errorf("%s: %+v", id, res)
				}
			}
			if n := b.Kept(topic); n != 40 && tt.slow == 0 {
				t.Errorf("%d were written", n)
			}
		})
	}
}

// TestLeaderThatHasMoved: what was certainly not written is written again, while the call lasts.
func TestLeaderThatHasMoved(t *testing.T) {
	t.Parallel()
	var refusals atomic.Int32
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: topic, Partitions: 1,
		Treat: func(int32, []sinktest.Written) sinktest.Treatment {
			if refusals.Add(-1) >= 0 {
				return sinktest.Treatment{Code: 6}
			}
			return sinktest.Treatment{}
		},
	})
	s := open(t, b, nil)
	refusals.Store(3)
	if res := s.Deliver(t.Context(), job("x"), nil); res.Class != delivery.Delivered || b.Kept(topic) != 1 || s.Repeats.Load() != 3 {
		t.Errorf("%+v, %d kept, %d resent", res, b.Kept(topic), s.Repeats.Load())
	}
	refusals.Store(1 << 20)
	s = open(t, b, func(c *Config) { c.Timeout = 3 * time.Second })
	if res := s.Deliver(t.Context(), job("y"), nil); res.Class != delivery.Unreachable || b.Kept(topic) != 1 {
		t.Errorf("%+v, %d kept", res, b.Kept(topic))
	}
}

// twoBrokers starts two brokers that lead a partition each. The second one's answers are the treatment, once there is one. The function to
// returns a job that is written to a partition.
func twoBrokers(t *testing.T) (s *Sink, how *atomic.Pointer[sinktest.Treatment], to func(partition int32) *delivery.Job) {
	t.Helper()
	how = &atomic.Pointer[sinktest.Treatment]{}
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: topic, Partitions: 2, Brokers: 2,
		Treat: func(node int32, _ []sinktest.Written) (now sinktest.Treatment) {
			if second := how.Load(); node == 1 && second != nil {
				now = *second
			}
			return now
		},
	})
	for p := range int32(2) {
		if err := b.Cluster.MoveTopicPartition(topic, p, p); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, b, func(c *Config) { c.Timeout = 3 * time.Second })
	keys := map[int32][]byte{}
	for i := 0; len(keys) < 2; i++ {
		j := job(fmt.Sprint("k", i))
		j.Key = []byte(j.ID)
		sinktest.Deliver(t, s, j, delivery.Delivered)
		seen := b.Seen()
		keys[seen[len(seen)-1].Partition] = j.Key
	}
	return s, how, func(partition int32) *delivery.Job {
		j := job("x")
		j.Key = keys[partition]
		return j
	}
}

// TestABrokerThatHangs delays the records of its own partitions only.
func TestABrokerThatHangs(t *testing.T) {
	t.Parallel()
	s, second, to := twoBrokers(t)
	second.Store(&sinktest.Treatment{Hang: true})
	stuck := make(chan delivery.Result, 1)
	go func() { stuck <- s.Deliver(t.Context(), to(1), nil) }()
	for len(stuck) == 0 {
		if res := s.Deliver(t.Context(), to(0), nil); res.Class != delivery.Delivered {
			t.Fatalf("the other broker's: %+v", res)
		}
		if res := s.Deliver(t.Context(), job("without a key"), nil); res.Class != delivery.Delivered && len(stuck) == 0 {
			t.Fatalf("without a key: %+v", res)
		}
	}
	if res := <-stuck; res.Class != delivery.Temporary || !strings.Contains(res.Detail, "may have been written") {
		t.Errorf("%+v", res)
	}
}

// TestAMovingLeader does not delay the records of other partitions: they wait no longer than they linger.
func TestAMovingLeader(t *testing.T) {
	t.Parallel()
	s, second, to := twoBrokers(t)
	second.Store(&sinktest.Treatment{Code: 6})
	waits := make(chan delivery.Result, 1)
	go func() { waits <- s.Deliver(t.Context(), to(1), nil) }()
	n := 0
	for begun := time.Now(); time.Since(begun) < 1500*time.Millisecond; n++ {
		sinktest.Deliver(t, s, to(0), delivery.Delivered)
	}
	if most := int(1500 * time.Millisecond / pause); n <= most+most/3 {
		t.Errorf("%d were delivered one after the other, as if each had waited for the pause", n)
	}
	second.Store(nil)
	if res := <-waits; res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// TestPartitionsWithoutAKey: a record without a key goes to a partition that there is and that has a leader, also behind one with a key.
func TestPartitionsWithoutAKey(t *testing.T) {
	t.Parallel()
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{Topic: topic, Partitions: 2})
	s := open(t, b, nil)
	s.batches.next = 6 // the topic was made anew, with fewer partitions
	keyed := job("keyed")
	keyed.Key = []byte("k")
	for _, j := range []*delivery.Job{keyed, job("without a key")} {
		sinktest.Deliver(t, s, j, delivery.Delivered)
	}
	if s.batches.next > 1 {
		t.Errorf("partition %d", s.batches.next)
	}
}

// TestNotSentInTime: what waits behind a request that hangs has certainly not been written, and is never.
func TestNotSentInTime(t *testing.T) {
	t.Parallel()
	var hang atomic.Bool
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: topic, Partitions: 1,
		Treat: func(int32, []sinktest.Written) sinktest.Treatment { return sinktest.Treatment{Hang: hang.Load()} },
	})
	s := open(t, b, func(c *Config) { c.Timeout = 3 * time.Second })
	if res := s.Deliver(t.Context(), job("connects"), nil); res.Class != delivery.Delivered { // which takes a while on a slow machine
		t.Fatalf("%+v", res)
	}
	hang.Store(true)
	first := make(chan delivery.Result, 1)
	go func() { first <- s.Deliver(t.Context(), job("first"), nil) }()
	for len(b.Seen()) == 1 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := make(chan delivery.Result, 2)
	go func() { late <- s.Deliver(ctx, job("given up"), nil) }()
	go func() { late <- s.Deliver(t.Context(), job("late"), nil) }()
	time.Sleep(50 * time.Millisecond)
	cancel()
	if res := <-late; res.Class != delivery.Interrupted {
		t.Errorf("given up: %+v", res)
	}
	hang.Store(false)
	if res := <-first; res.Class != delivery.Temporary {
		t.Errorf("first: %+v", res)
	}
	if res := <-late; res.Class != delivery.Unreachable || !strings.Contains(res.Detail, "others wait for an acknowledgement") {
		t.Errorf("late: %+v", res)
	}
	if res := s.Deliver(t.Context(), job("next"), nil); res.Class != delivery.Delivered {
		t.Errorf("next: %+v", res)
	}
	for _, w := range b.Seen() {
		if w.ID == "given up" || w.ID == "late" { // its acknowledgement would have come when nobody waited for it
			t.Errorf("a job that was not to be sent any more has been written: %s", w.ID)
		}
	}
}

// TestManyAtOnce: all are written, once, in few requests.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: topic, Partitions: 6, Brokers: 3,
		Treat: func(int32, []sinktest.Written) sinktest.Treatment { requests.Add(1); return sinktest.Treatment{} },
	})
	s := open(t, b, func(c *Config) { c.Linger = 50 * time.Millisecond })
	var jobs []*delivery.Job
	for i := range 2000 {
		j := job(fmt.Sprint(i))
		if i%2 == 0 {
			j.Key = []byte(j.ID)
		}
		jobs = append(jobs, j)
	}
	for i, res := range sinktest.All(t, s, jobs) {
		if res.Class != delivery.Delivered {
			t.Fatalf("%s: %+v", jobs[i].ID, res)
		}
	}
	ids := map[string]bool{}
	for _, w := range b.Seen() {
		ids[w.ID] = true
	}
	if len(ids) != 2000 || b.Kept(topic) != 2000 || requests.Load() > 500 {
		t.Errorf("%d ids, %d records, %d requests", len(ids), b.Kept(topic), requests.Load())
	}
}

// TestLogins: a password that is wrong is no fault of the jobs; one that is read again heals it.
func TestLogins(t *testing.T) {
	t.Parallel()
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: topic, Partitions: 1, More: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "pacer", "opensesame")},
	})
	b.Cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster.KeepControl()
		if !bytes.Contains(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, []byte("swordfish")) {
			return nil, nil, false
		}
		refusal := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		refusal.ErrorCode = 58 // as brokers of Apache Kafka do
		return refusal, nil, true
	})
	var password atomic.Pointer[string]
	login := func(c *Config) {
		c.SASLMechanism, c.Username, c.Password = "plain", "pacer", "x"
		c.SecretFrom("password", func() (string, error) { return *password.Load(), nil })
	}
	wrong, right := "swordfish", "opensesame"
	password.Store(&wrong)
	s := open(t, b, login)
	if res := s.Deliver(t.Context(), job("1"), nil); res.Class != delivery.Misconfigured || strings.Contains(res.Detail, wrong) {
		t.Errorf("%+v", res)
	}
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "username: ") {
		t.Errorf("check: %v", err)
	}
	password.Store(&right)
	s = open(t, b, login)
	sinktest.Deliver(t, s, job("2"), delivery.Delivered)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
}

// TestSettingsThatAreWrong: a check names the setting, and a delivery, which was certainly not written, has the class.
func TestSettingsThatAreWrong(t *testing.T) {
	t.Parallel()
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: topic, Partitions: 1, More: []kfake.Opt{
			kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
			kfake.User("PLAIN", "reader", "secret", kfake.ACL{
				Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral,
				Operation: kmsg.ACLOperationDescribe, Allow: true,
			}),
		},
	})
	_, other := sinktest.Certificate(t)
	for want, tt := range map[string]struct {
		change func(*Config)
		class  delivery.ResultClass
	}{
		"topic: orders.paced may not be":     {func(c *Config) { c.Username, c.Password = "reader", "secret" }, delivery.Misconfigured},
		"topic: topic nowhere at":            {func(c *Config) { c.Topic = "nowhere" }, delivery.Misconfigured},
		"tls: topic orders.paced at":         {func(c *Config) { c.CAFile = other }, delivery.Misconfigured},
		"brokers: topic orders.paced at 127": {func(c *Config) { c.Brokers = []string{"127.0.0.1:1"} }, delivery.Unreachable},
	} {
		s := open(t, b, func(c *Config) {
			c.SASLMechanism, c.Username, c.Password, c.Timeout = "plain", "admin", "admin", 5*time.Second
			tt.change(c)
		})
		before := len(b.Seen())
		if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || len(b.Seen()) != before {
			t.Errorf("%v, want %q", err, want)
		}
		if res := s.Deliver(t.Context(), job("x"), nil); res.Class != tt.class || res.Detail == "" {
			t.Errorf("%s: %+v", want, res)
		}
	}
	if b.Kept(topic) != 0 {
		t.Error("something was written")
	}
}
