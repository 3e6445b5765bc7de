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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
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
	s := &stack{t: t, dir: t.TempDir(), binary: program(t), brokers: o.brokers, redis: o.redis, settings: o.settings}
	if s.brokers == nil {
		s.brokers = testservices.Kafka(t)
	}
	if s.redis == "" {
		s.redis = testservices.RedisAddr(t)
	}
	s.dsn = schema.Database(t)
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

// try is run of what may fail.
func (s *stack) try(args ...string) (string, error) { return s.runAs(nil, args...) }

// runAs is try with variables of its own besides the test's configuration.
func (s *stack) runAs(variables []string, args ...string) (string, error) {
	return s.bare(variables, append(args, "--config", s.config())...)
}

// bare is runAs without the test's configuration.
func (s *stack) bare(variables []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(environment(), variables...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// soon is the context of what has to be done within a minute.
func (s *stack) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	return ctx
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

// started starts a daemon and waits until it is ready.
func (s *stack) started(name string, more ...string) *daemon {
	s.t.Helper()
	d := s.start(name, more...)
	d.awaitReady(readyTime)
	return d
}

// fleet starts daemons beside each other and waits until all are ready.
func (s *stack) fleet(names ...string) (daemons []*daemon) {
	s.t.Helper()
	for _, name := range names {
		daemons = append(daemons, s.start(name))
	}
	for _, d := range daemons {
		d.awaitReady(readyTime)
	}
	return daemons
}

// startTwo is a fleet of two.
func (s *stack) startTwo() (one, two *daemon) {
	s.t.Helper()
	daemons := s.fleet("one", "two")
	return daemons[0], daemons[1]
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

// stop ends the daemon in order.
func (d *daemon) stop() {
	d.s.t.Helper()
	d.noteHops()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(25 * time.Second):
		d.s.t.Errorf("%s did not end within its shutdown timeout", d.name)
		d.kill()
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.s.t.Errorf("%s exited with %d", d.name, code)
	}
}

// awaitReady waits for /readyz.
func (d *daemon) awaitReady(within time.Duration) {
	d.s.t.Helper()
	d.s.await(within, d.name+" to be ready", func() bool { return d.get("/readyz") == http.StatusOK })
}

// answer is what the daemon's HTTP server answers for a path.
func (d *daemon) answer(path string, within time.Duration) (status int, body []byte, err error) {
	client := http.Client{Timeout: within}
	r, err := client.Get("http://" + d.listen + path)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = r.Body.Close() }()
	body, err = io.ReadAll(r.Body)
	return r.StatusCode, body, err
}

// get is the status of a path, 0 when the daemon does not answer.
func (d *daemon) get(path string) int {
	status, _, _ := d.answer(path, time.Second)
	return status
}

// read is the body of a path; nil if there is none.
func (d *daemon) read(path string) []byte {
	status, body, err := d.answer(path, 5*time.Second)
	if err != nil || status != http.StatusOK {
		return nil
	}
	return body
}

// body is read of a path that has to be there.
func (d *daemon) body(path string) []byte {
	d.s.t.Helper()
	status, body, err := d.answer(path, 5*time.Second)
	if err != nil || status != http.StatusOK {
		d.s.t.Fatalf("%s of %s: %d, %v: %.300s", path, d.name, status, err, body)
	}
	return body
}

// metric is the sum of the daemon's series of a name, or of those that begin with a name and labels.
func (d *daemon) metric(name string) float64 {
	d.s.t.Helper()
	sum, _ := sumOf(d.body("/metrics"), name)
	return sum
}

// metricOf is the sum of a metric over daemons.
func metricOf(daemons []*daemon, name string) (sum float64) {
	for _, d := range daemons {
		sum += d.metric(name)
	}
	return sum
}

// linesOf is log.lines over daemons.
func linesOf(daemons []*daemon, parts ...string) (n int) {
	for _, d := range daemons {
		n += d.log.lines(parts...)
	}
	return n
}

// sumOf is the sum of the series of a name in the text of metrics, or of those that begin with a name and labels.
func sumOf(metrics []byte, name string) (sum float64, found bool) {
	labelled := strings.Contains(name, "{")
	for line := range strings.Lines(string(metrics)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !labelled && rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		value, _ := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		sum, found = sum+value, true
	}
	return sum, found
}

// proc is what the system says of the process.
func (d *daemon) proc() procfs.Proc {
	d.s.t.Helper()
	p, err := procfs.NewProc(d.cmd.Process.Pid)
	noError(d.s.t, err)
	return p
}

// peakRSS is the largest resident set of the process so far, in MiB.
func (d *daemon) peakRSS() int {
	d.s.t.Helper()
	status, err := d.proc().NewStatus()
	noError(d.s.t, err)
	return int(status.VmHWM >> 20)
}

// stat is what the process has used. The resolution of its processor time is a hundredth of a second.
func (d *daemon) stat() procfs.ProcStat {
	d.s.t.Helper()
	stat, err := d.proc().Stat()
	noError(d.s.t, err)
	return stat
}

// processor is the processor time that the process has used so far.
func (d *daemon) processor() time.Duration {
	d.s.t.Helper()
	return time.Duration(d.stat().CPUTime() * float64(time.Second))
}

// readyTime is how long a daemon may take to be ready beside other tests.
const readyTime = 30 * time.Second

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

// message is the job's record. One without an id has no header for it.
func (j job) message() kafka.Message {
	m := kafka.Message{Value: j.payload, Headers: append([]kafka.Header{header("pacer-campaign", j.campaign)}, j.headers...)}
	if m.Value == nil {
		m.Value = payloadOf(j.id)
	}
	if j.id != "" {
		m.Headers = append(m.Headers, header("pacer-job-id", j.id))
	}
	return m
}

// produce writes jobs to one partition with one request.
func (s *stack) produce(topic string, partition int, compression kafka.Compression, jobs ...job) {
	s.t.Helper()
	records := make([]kafka.Record, len(jobs))
	for i, j := range jobs {
		m := j.message()
		records[i] = kafka.Record{Value: kafka.NewBytes(m.Value), Headers: m.Headers}
	}
	ctx := s.soon()
	answer, err := s.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Compression: compression, Records: kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		s.t.Fatalf("write to %s/%d: %v", topic, partition, err)
	}
}

func header(key, value string) kafka.Header { return kafka.Header{Key: key, Value: []byte(value)} }

// write writes messages to ingress; change changes the settings of the writer.
func (s *stack) write(messages []kafka.Message, change func(*kafka.Writer)) error {
	w := &kafka.Writer{
		Addr: kafka.TCP(s.brokers...), Topic: s.ingress, Balancer: &kafka.RoundRobin{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, Transport: s.client.Transport,
	}
	defer func() { _ = w.Close() }()
	change(w)
	ctx := s.soon()
	return w.WriteMessages(ctx, messages...)
}

// publish writes the jobs to the ingress topic, round-robin over its partitions, in their order.
func (s *stack) publish(jobs []job) {
	s.t.Helper()
	for some := range slices.Chunk(jobs, 12_000) {
		messages := make([]kafka.Message, len(some))
		for i, j := range some {
			messages[i] = j.message()
		}
		if err := s.write(messages, func(w *kafka.Writer) { w.BatchSize = 2000 }); err != nil {
			s.t.Fatalf("publish: %v", err)
		}
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

// program is the one under test.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PACER_BIN")
	if path == "" {
		t.Fatal("PACER_BIN is not set; run make test, which builds the daemon first")
	}
	return path
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
