// Package test holds what is proved from outside: daemons as processes, real Kafka, Redis and PostgreSQL, a receiver
// that counts. Nothing here believes what the daemons say of themselves.
package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/testservices"
)

func TestMain(m *testing.M) {
	code := m.Run()
	schema.Drop()
	os.Exit(code)
}

// schema is a database with the schema in it.
var schema = testservices.NewTemplate(func(ctx context.Context, dsn string) error {
	m, err := catalog.NewMigrator(dsn)
	if err == nil {
		_, err = m.Up(ctx)
	}
	return err
})

// stack is one test's own world: topics, a database, a key prefix and a receiver, on the shared services.
type stack struct {
	t        *testing.T
	brokers  []string
	redis    string
	dsn      string
	ingress  string
	prefix   string
	dir      string
	binary   string
	receiver *receiver
	client   *kafka.Client
	cluster  *broker.Client // the same, as the daemons see it
	db       *pgx.Conn
	settings string // more YAML
	again    int    // jobs that daemons wrote to lanes for a second time; see noteHops
}

const defaultLanes = 16

type stackOptions struct {
	partitions int // of the ingress topic; 6
	lanes      int // defaultLanes
	brokers    []string
	redis      string
	settings   string // more top-level YAML
	kafka      string // more YAML under kafka:
	sinks      string // YAML under sinks: besides receiver
}

func newStack(t *testing.T, o stackOptions) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir(), brokers: o.brokers, redis: o.redis, settings: o.settings}
	if s.brokers == nil {
		s.brokers = testservices.Kafka(t)
	}
	if s.redis == "" {
		s.redis = testservices.RedisAddr(t)
	}
	s.dsn = schema.Database(t)
	if s.binary = os.Getenv("PACER_BIN"); s.binary == "" {
		t.Fatal("PACER_BIN is not set; run make test, which builds the daemon first")
	}
	s.ingress = testservices.Topic(t, s.brokers, "e2e", max(o.partitions, 1), kafka.ConfigEntry{
		ConfigName: "retention.ms", ConfigValue: "-1",
	})
	s.prefix = s.ingress + "."
	s.receiver = newReceiver(t)
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &kafka.Client{Addr: kafka.TCP(s.brokers...), Transport: transport, Timeout: 10 * time.Second}
	cluster, err := broker.New(broker.Options{Brokers: s.brokers})
	noError(t, err)
	t.Cleanup(cluster.Close)
	s.cluster = cluster
	lanes := o.lanes
	if lanes == 0 {
		lanes = defaultLanes
	}
	config := fmt.Sprintf(`
kafka:    {brokers: ["%s"], topics: [%s], group: %s, topic_prefix: %s, lanes: %d, %s}
redis:    {addrs: ["%s"]}
postgres: {dsn: "%s"}
log:      {level: info, format: text}
default_sink: receiver
sinks:
  receiver: {type: http, url: "%s", max_in_flight: 256, timeout: 5s}
%s
%s
`, strings.Join(s.brokers, `","`), s.ingress, s.ingress, s.prefix, lanes, o.kafka, s.redis, s.dsn, s.receiver.url, o.sinks, o.settings)
	noError(t, os.WriteFile(s.config(), []byte(config), 0o600))
	s.run("migrate", "up")
	t.Cleanup(s.dropTopics)
	db, err := pgx.Connect(context.Background(), s.dsn)
	noError(t, err)
	s.db = db
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return s
}

func (s *stack) config() string { return filepath.Join(s.dir, "pacer.yaml") }

// dropTopics removes the topics that pacer owned in this test, so that a long run of tests does not fill the broker.
func (s *stack) dropTopics() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	meta, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return
	}
	var names []string
	for _, topic := range meta.Topics {
		if strings.HasPrefix(topic.Name, s.prefix) {
			names = append(names, topic.Name)
		}
	}
	_, _ = s.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: names})
}

// run runs a command of pacer to its end and returns what it printed; a failure ends the test.
func (s *stack) run(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("pacer %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *stack) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--config", s.config())...)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// bare runs pacer without the test's configuration, with variables of its own, and returns what it printed.
func (s *stack) bare(environ []string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(environment(), environ...)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// sql executes a statement as an operator would.
func (s *stack) sql(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(context.Background(), statement, args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// campaign creates a campaign.
func (s *stack) campaign(id string, rate float64) {
	s.t.Helper()
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate) VALUES ($1, $2)`, id, rate)
}

// daemon is one `pacer run`.
type daemon struct {
	s      *stack
	name   string
	listen string
	cmd    *exec.Cmd
	ended  chan struct{}
	log    *logFile
}

// start runs a daemon; more are variables of its environment.
func (s *stack) start(name string, more ...string) *daemon {
	s.t.Helper()
	d := &daemon{s: s, name: name, listen: fmt.Sprintf("127.0.0.1:%d", testservices.FreePort(s.t)), log: &logFile{}}
	d.launch(more...)
	s.t.Cleanup(func() {
		d.kill()
		for line := range strings.Lines(d.log.String()) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
				s.t.Logf("%s: %s", name, strings.TrimSpace(line))
			}
		}
		if s.t.Failed() {
			s.t.Logf("--- %s\n%s", name, d.log.tail(4000))
		}
	})
	return d
}

func (d *daemon) launch(more ...string) {
	d.s.t.Helper()
	d.cmd = exec.Command(d.s.binary, "run", "--config", d.s.config())
	d.cmd.Env = append(append(environment(), "PACER_HTTP_LISTEN="+d.listen), more...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	noError(d.s.t, d.cmd.Start())
	ended := make(chan struct{})
	d.ended = ended
	go func() {
		_ = d.cmd.Wait()
		close(ended)
	}()
}

// environment is the test's own without pacer's variables: the services' addresses must not win over the test's file.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PACER_") })
}

// kill ends the daemon as kill -9 does.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

// dump makes the daemon print its metrics and the stacks of its goroutines.
func (d *daemon) dump() {
	if r, err := http.Get("http://" + d.listen + "/metrics"); err == nil {
		_, _ = io.Copy(d.log, r.Body)
		_ = r.Body.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGQUIT)
	<-d.ended
}

// stop ends the daemon gracefully and returns its exit code.
func (d *daemon) stop() int {
	d.s.t.Helper()
	d.noteHops()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(25 * time.Second):
		d.s.t.Errorf("%s did not end within its shutdown timeout", d.name)
		d.kill()
	}
	return d.cmd.ProcessState.ExitCode()
}

// awaitReady waits for /readyz.
func (d *daemon) awaitReady(within time.Duration) {
	d.s.t.Helper()
	d.s.await(within, d.name+" to be ready", func() bool { return d.get("/readyz") == http.StatusOK })
}

// get is the status of a path of the daemon's HTTP server, 0 when it does not answer.
func (d *daemon) get(path string) int {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get("http://" + d.listen + path)
	if err != nil {
		return 0
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// peakRSS is the largest resident set of the process so far, in MiB.
func (d *daemon) peakRSS() int {
	d.s.t.Helper()
	status := readFile(d.s.t, fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	for line := range strings.Lines(status) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib / 1024
		}
	}
	d.s.t.Fatal("no VmHWM in the process's status")
	return 0
}

// await polls until ok or fails the test.
func (s *stack) await(within time.Duration, what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited %s in vain for %s", within, what)
		}
		time.Sleep(50 * time.Millisecond) // many of these looks ask the broker or a daemon
	}
}

// job is one record to publish.
type job struct {
	campaign, id string
	payload      []byte
	headers      []kafka.Header
}

// payloadOf is the payload of a job that has none of its own. The receiver tells by it whether a request is the job's.
func payloadOf(id string) []byte { return []byte(`{"to":"` + id + `"}`) }

// publish writes the jobs to the ingress topic, round-robin over its partitions, in their order.
func (s *stack) publish(jobs []job) {
	s.t.Helper()
	w := &kafka.Writer{
		Addr: kafka.TCP(s.brokers...), Topic: s.ingress, Balancer: &kafka.RoundRobin{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, BatchSize: 2000, Transport: s.client.Transport,
	}
	defer func() { _ = w.Close() }()
	messages := make([]kafka.Message, 0, 12_000)
	flush := func() {
		s.t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.WriteMessages(ctx, messages...); err != nil {
			s.t.Fatalf("publish: %v", err)
		}
		messages = messages[:0]
	}
	for _, j := range jobs {
		payload := j.payload
		if payload == nil {
			payload = payloadOf(j.id)
		}
		headers := append([]kafka.Header{{Key: "pacer-campaign", Value: []byte(j.campaign)}}, j.headers...)
		if j.id != "" {
			headers = append(headers, kafka.Header{Key: "pacer-job-id", Value: []byte(j.id)})
		}
		messages = append(messages, kafka.Message{Value: payload, Headers: headers})
		if len(messages) == cap(messages) {
			flush()
		}
	}
	if len(messages) > 0 {
		flush()
	}
}

// mix interleaves jobs of several campaigns in proportion to their numbers.
func mix(numbers map[string]int) []job {
	type line struct {
		id      string
		n, done int
	}
	var lines []*line
	total := 0
	for id, n := range numbers {
		lines = append(lines, &line{id: id, n: n})
		total += n
	}
	jobs := make([]job, 0, total)
	for len(jobs) < total {
		for _, l := range lines {
			// One more of this campaign while it lags behind its share of what has been laid out.
			if l.done < l.n && l.done*total <= l.n*len(jobs) {
				jobs = append(jobs, job{campaign: l.id, id: fmt.Sprintf("%s-%d", l.id, l.done)})
				l.done++
			}
		}
	}
	return jobs
}

// logFile keeps what a process prints.
type logFile struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logFile) tail(n int) string {
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lines counts the lines that contain all the parts.
func (l *logFile) lines(parts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			n++
		}
	}
	return n
}

// noError ends the test with an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readFile is the text of a file.
func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	noError(t, err)
	return string(text)
}

// exitCode is the code a command ended with.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}
