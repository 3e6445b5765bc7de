package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/log"
)

// write puts text into a file of its own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readFile returns the text of a file, from the folder of this package.
func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// glob returns the files of some patterns. Each must have one.
func glob(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		all = append(all, found...)
	}
	return all
}

// everySetting yields each setting, of no kind, and those of each kind of sink.
func everySetting(yield func(kind string, leaf setting) bool) {
	for _, kind := range append([]string{""}, sink.Kinds()...) {
		var cfg any = Default()
		if kind != "" {
			cfg, _ = sink.NewConfig(kind)
		}
		for _, leaf := range schemaOf("", cfg).leaves {
			if !yield(kind, leaf) {
				return
			}
		}
	}
}

// Load reads a configuration and judges all of it, but for what is missing.
func Load(path string, explicit bool, environ []string) (*Config, []string, error) {
	l, err := read(Source{path, explicit, environ})
	if err == nil {
		err = l.faults(l.values)
	}
	if err != nil {
		return nil, l.warnings, UsageError{err}
	}
	return l.cfg, append(l.warnings, l.cfg.warnings()...), nil
}

// load loads a file with this text; the environment is what is given, never the test's own.
func load(t *testing.T, text string, environ ...string) (*Config, []string, error) {
	t.Helper()
	return Load(write(t, "pacer.yaml", text), true, environ)
}

func mustLoad(t *testing.T, text string, environ ...string) *Config {
	t.Helper()
	cfg, warnings, err := load(t, text, environ...)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	return cfg
}

const exampleConfig = `
kafka:    {brokers: ["127.0.0.1:9092"], topics: [pacer.jobs], group: pacer, topic_prefix: pacer.}
redis:    {addrs: ["127.0.0.1:6379"]}
postgres: {dsn: "postgres://pacer@127.0.0.1:5432/pacer"}
http:     {listen: "127.0.0.1:8080"}
pacing:   {min_quantum: 25ms, max_quantum: 1s, late_tolerance: 20ms}
retry:    {max_attempts: 8, initial: 5s, max: 30m, jitter: 0.2}
default_sink: receiver
sinks:
  receiver: {type: http, url: "http://127.0.0.1:9000/deliver", max_in_flight: 128, timeout: 5s}
  nowhere:  {type: discard}
log:      {level: info, format: text}
`

func TestExample(t *testing.T) {
	cfg := mustLoad(t, exampleConfig)
	want := Default()
	want.Kafka.Brokers = []string{"127.0.0.1:9092"}
	want.Redis = Redis{Addrs: []string{"127.0.0.1:6379"}, Mode: "single", KeyPrefix: "pacer."}
	want.Eventual.Roots = []string{"127.0.0.1:6379"}
	want.Postgres.DSN = "postgres://pacer@127.0.0.1:5432/pacer"
	want.DefaultSink = "receiver"
	receiver := http.Default()
	receiver.URL, receiver.MaxInFlight, receiver.Timeout = "http://127.0.0.1:9000/deliver", 128, 5*time.Second
	want.Sinks = map[string]sink.Config{"receiver": receiver, "nowhere": log.DefaultDiscard()}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%v\nwant\n%v", cfg, want)
	}
	if err := cfg.missing([]Section{NeedKafka, NeedTopics, NeedRedis, NeedPostgres, NeedSinks}); err != nil {
		t.Error(err)
	}
}

func TestEnvironmentAloneSuffices(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg, warnings, err := Load("", false, []string{
		"HOME=/root", "PACER_KAFKA_BROKERS=a:1, b:2,", "PACER_REDIS_ADDRS=c:3", "PACER_POSTGRES_DSN=postgres://p@d:4/pacer",
		"PACER_SINKS_RECEIVER_TYPE=http", "PACER_SINKS_RECEIVER_URL=http://e:5/", "PACER_SINKS_RECEIVER_MAX_IN_FLIGHT=3",
		"PACER_SINKS_RECEIVER_HEADERS_X_API_KEY=k", "PACER_KAFKA_TOPIC_PREFIX=blue.", "PACER_PACING_MIN_QUANTUM=30ms",
		"PACER_HTTP_LISTEN=off", "PACER_HTTP_METRICS_LISTEN=:9464", "PACER_KAFKA_GROUP=", "PACER_KAFKA_TLS=true", "PACER_KAFKA_TLS_SERVER_NAME=k",
		"PACER_RETRY_JITTER=0.5", "PACER_PACING_MAX_BUFFER_BYTES=1GiB", "PACER_ADMIN_TOKEN=sixteen-letters-", "PACER_MAX_WEIGHT=7",
		"PACER_KAFKA_TIMER_DELAYS=1s,2s", "PACER_SHUTDOWN_TIMEOUT=5s", "PACER_UNKNOWN_GRACE=1m",
		"PACER_DEDUPE_TTL=1w2d",
	})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	want := Default()
	want.Kafka.Brokers, want.Kafka.TopicPrefix = []string{"a:1", "b:2"}, "blue."
	want.Kafka.TLS = TLS{Enabled: true, ServerName: "k"}
	want.Kafka.TimerDelays = []time.Duration{time.Second, 2 * time.Second}
	want.Redis = Redis{Addrs: []string{"c:3"}, Mode: "single", KeyPrefix: "blue."}
	want.Eventual.Roots = []string{"c:3"}
	want.Postgres.DSN = "postgres://p@d:4/pacer"
	want.HTTP.Listen, want.HTTP.MetricsListen = "", ":9464"
	want.Pacing.MinQuantum, want.Pacing.MaxBufferBytes = 30*time.Millisecond, 1<<30
	want.Retry.Jitter, want.MaxWeight, want.AdminToken = 0.5, 7, "sixteen-letters-"
	want.ShutdownTimeout, want.UnknownGrace = 5*time.Second, time.Minute
	want.Dedupe.TTL = 9 * 24 * time.Hour
	want.DefaultSink = "receiver" // the only one
	receiver := http.Default()
	receiver.URL, receiver.MaxInFlight, receiver.Headers = "http://e:5/", 3, map[string]string{"x-api-key": "k"}
	want.Sinks = map[string]sink.Config{"receiver": receiver}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%v\nwant\n%v", cfg, want)
	}
	if got := cfg.Sinks["receiver"].(*http.Config).Headers["x-api-key"]; got != "k" {
		t.Errorf("header %q", got)
	}
}

func TestEnvironmentWins(t *testing.T) {
	cfg := mustLoad(t, `
kafka: {group: one, tls: true, brokers: [a:1]}
sinks:
  my-sink_a.b: {type: http, url: "http://a/", headers: {X-Key: one, X-Other: two}}
  a_max: {type: discard}
default_sink: a_max
`, "PACER_KAFKA_GROUP=two", "PACER_KAFKA_TLS_CA_FILE=/ca", "PACER_SINKS_MY_SINK_A_B_URL=http://b/",
		"PACER_SINKS_MY_SINK_A_B_HEADERS_X_KEY=three", "PACER_SINKS_A_MAX_MAX_IN_FLIGHT=9")
	if cfg.Kafka.Group != "two" || cfg.Kafka.TLS != (TLS{Enabled: true, Certificates: access.Certificates{CAFile: "/ca"}}) {
		t.Errorf("kafka %+v", cfg.Kafka)
	}
	h := cfg.Sinks["my-sink_a.b"].(*http.Config)
	if h.URL != "http://b/" || !reflect.DeepEqual(h.Headers, map[string]string{"X-Key": "three", "X-Other": "two"}) {
		t.Errorf("sink %q %q", h.URL, h.Headers)
	}
	if n := cfg.Sinks["a_max"].Entry().MaxInFlight; n != 9 || len(cfg.Sinks) != 2 {
		t.Errorf("max_in_flight %d of %d sinks", n, len(cfg.Sinks))
	}
}

// A variable sets a key of a section; it does not hide that the file has no section there.
func TestVariablesHideNoValueInThePlaceOfASection(t *testing.T) {
	l, err := read(Source{Path: write(t, "pacer.yaml", ""), Explicit: true})
	if err != nil {
		t.Fatal(err)
	}
	paths := l.envPaths()
	paths["PACER_SINKS_OUT_TYPE"] = []string{"sinks", "out", "type"}
	paths["PACER_SINKS_OUT_HEADERS_X"] = []string{"sinks", "out", "headers", "x"}
	tried := 0
	for name, path := range paths {
		for n := 1; n < len(path); n++ {
			section := strings.Join(path[:n], ".")
			if _, isSwitch := l.schema.switchOf(section); isSwitch {
				continue // tls: 5 is a value of tls.enabled
			}
			for _, value := range []string{"5", "[a]", "a", "true"} {
				text := strings.Join(path[:n], ": {") + ": " + value + strings.Repeat("}", n-1)
				text = strings.Replace(text, "out: {headers", "out: {type: http, url: 'http://a/', headers", 1)
				_, _, without := load(t, text)
				_, _, with := load(t, text, name+"=1")
				if with == nil || without == nil || with.Error() != without.Error() || !strings.HasPrefix(with.Error(), section+": must be a section") {
					t.Errorf("%s with %s: %v, without it: %v", text, name, with, without)
				}
				tried++
			}
		}
	}
	if tried < 100 {
		t.Errorf("%d were tried", tried)
	}
}

func TestRedisModes(t *testing.T) {
	addrs := func(list ...string) []string { return list }
	defaults := Default().Eventual
	eventual := func(roots ...string) Eventual {
		e := defaults
		e.Roots = roots
		return e
	}
	tests := []struct {
		name, text string
		env        []string
		redis      Redis
		eventual   Eventual
	}{
		{"one address", "redis: {addrs: [a:1], shards: 4}", nil,
			Redis{Addrs: addrs("a:1"), Mode: "single", Shards: 4}, eventual("a:1")},
		{"roots of their own", "redis: {addrs: [a:1]}\neventual: {roots: [b:2, c:3], sync: 2s, low_burst: 0s, high_burst: 4s}", nil,
			Redis{Addrs: addrs("a:1"), Mode: "single"},
			Eventual{Roots: addrs("b:2", "c:3"), Sync: 2 * time.Second, HighBurst: 4 * time.Second}},
		{"sentinel", "redis: {addrs: [a:1, b:2], mode: sentinel, master_name: m, sentinel_username: u, sentinel_password: p}", nil,
			Redis{Addrs: addrs("a:1", "b:2"), Mode: "sentinel", MasterName: "m", SentinelUsername: "u", SentinelPassword: "p"}, defaults},
		{"cluster", "redis: {addrs: [a:1, b:2], mode: cluster, shards: 32}", nil,
			Redis{Addrs: addrs("a:1", "b:2"), Mode: "cluster", Shards: 32}, defaults},
		{"ring", "redis: {addrs: [a:1, c:3], mode: ring, db: 2}", nil,
			Redis{Addrs: addrs("a:1", "c:3"), Mode: "ring", DB: 2}, defaults},
		{"ring by the environment", "", []string{"PACER_REDIS_ADDRS=a:1,c:3", "PACER_REDIS_MODE=ring", "PACER_REDIS_SHARDS=6",
			"PACER_EVENTUAL_ROOTS=e:5,f:6"},
			Redis{Addrs: addrs("a:1", "c:3"), Mode: "ring", Shards: 6}, eventual("e:5", "f:6")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := mustLoad(t, tt.text, tt.env...)
			tt.redis.KeyPrefix = "pacer."
			if !reflect.DeepEqual(cfg.Redis, tt.redis) {
				t.Errorf("redis %+v, want %+v", cfg.Redis, tt.redis)
			}
			if !reflect.DeepEqual(cfg.Eventual, tt.eventual) {
				t.Errorf("eventual %+v, want %+v", cfg.Eventual, tt.eventual)
			}
		})
	}
}

func TestEveryKeyHasAVariableOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	for kind, leaf := range everySetting {
		if name := EnvName(leaf.path); kind == "" {
			if other := seen[name]; other != "" {
				t.Errorf("%s and %s are both %s", leaf.path, other, name)
			}
			seen[name] = leaf.path
		}
		if err := leaf.set(struct{}{}); err == nil || strings.Contains(err.Error(), "pacer cannot configure") {
			t.Errorf("%s %s takes a struct: %v", kind, leaf.path, err)
		}
	}
}

func TestBadConfigurations(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := write(t, "empty", "\n")
	tests := []struct {
		name, text string
		env        []string
		want       []string // the lines' beginnings, in order
	}{
		{"unknown keys, all of them", "kafka: {broker: [a:1], lanez: 3}\nsniks: {}\nx: 1", nil, []string{
			"kafka.broker: there is no such key; use one of brokers,", "kafka.lanez: there is no such key; use one of brokers,",
			"sniks: there is no such key; use one of kafka,", "x: there is no such key; use one of kafka, redis,"}},
		{"unknown key of a sink", "sinks: {a: {type: http, url: \"http://a\", recrod: x, tpye: y}}", nil, []string{
			"sinks.a.recrod: there is no such key; use one of url,", "sinks.a.tpye: there is no such key; use one of url,"}},
		{"key of another type of sink", "sinks: {a: {type: discard, url: \"http://a\"}}", nil, []string{"sinks.a.url: there is no such key;"}},
		{"no type", "sinks: {a: {url: \"http://a\"}, b: }", nil, []string{
			"sinks.a.type: required; use one of ", "sinks.b.type: required;"}},
		{"type of a section", "sinks: {a: {type: http, url: \"http://a\", basic: {type: x}}}", nil, []string{
			"sinks.a.basic.type: there is no such key; use one of username, password"}},
		{"name of a sink", "sinks: {\"a b\": {type: log}}", nil, []string{"sinks.a b: not a name for a sink;"}},
		{"sinks as a list", "sinks: [a]", nil, []string{"sinks: must be a section"}},
		{"url", "sinks: {a: {type: http}}", nil, []string{"sinks.a.url: required; use one such as https://"}},
		{"timeout without unit", "sinks: {a: {type: http, url: \"http://a\", timeout: 5}}", nil, []string{
			`sinks.a.timeout: "5" is not a duration; give a number with a unit`}},
		{"default_sink", "sinks: {receiver: {type: log}}\ndefault_sink: reciever", nil, []string{
			`default_sink: there is no sink "reciever"; use one of receiver`}},
		{"section as a value", "kafka: 7", nil, []string{"kafka: must be a section with the keys brokers, topics,"}},
		{"value as a section", "kafka: {group: {a: 1}}", nil, []string{"kafka.group: must be text"}},
		{"number", "kafka: {lanes: many}", nil, []string{`kafka.lanes: "many" is not a whole number`}},
		{"number with too many digits", "kafka: {lanes: '99999999999999999999'}", nil, []string{`kafka.lanes: "99999999999999999999" is out of range`}},
		{"range", "kafka: {lanes: 0}", nil, []string{"kafka.lanes: 0 is out of range; use a number between 1 and"}},
		{"variable", "", []string{"PACER_KAFKA_LANES=many"}, []string{`kafka.lanes (PACER_KAFKA_LANES): "many" is not a whole number`}},
		{"collector", "tracing: {endpoint: collector:4318}", nil, []string{"tracing.endpoint: must be the URL of an OpenTelemetry collector"}},
		{"collector's credentials", "tracing: {endpoint: 'http://collector:4318', authorization: Bearer sesame}", nil, []string{"tracing.authorization: would be sent unencrypted; use an https endpoint"}},
		{"collector's user", "tracing: {endpoint: 'https://me:sesame@collector'}", nil, []string{"tracing.endpoint: must be the URL of an OpenTelemetry collector"}},
		{"sample", "tracing: {sample: 1.5}", nil, []string{"tracing.sample: 1.5 is out of range; use a number between 0 and 1"}},
		{"list of tokens", "http: {tokens: \"alice boss\"}", nil, []string{"http.tokens: line 1 must be a name, a role, and the SHA-256 of the token"}},
		{"file of tokens without file:", "http: {tokens: hunter22}", nil, []string{
			"http.tokens: line 1 must be a name, a role, and the SHA-256 of the token; a file of such lines is named as file:PATH"}},
		{"anonymous", "http: {anonymous: admin}", nil, []string{"http.anonymous: there is no \"admin\"; use one of viewer, none"}},
		{"base path", "http: {base_path: pacer/}", nil, []string{"http.base_path: \"pacer/\" is not a path that begins with / and does not end with it; use one such as /pacer, with letters, digits, - and _"}},
		{"proxy", "http: {trusted_origins: [ops], proxy: {networks: [10.0.0.1], user_header: \"a b\"}}", nil, []string{
			"http.trusted_origins: \"ops\" is not an origin; use one such as https://ops.example.com",
			"http.proxy.networks: \"10.0.0.1\" is not a network; use one such as 10.0.0.7/32 or 127.0.0.1/32",
			"http.proxy.user_header: \"a b\" is not the name of a header; use one such as X-Forwarded-User",
		}},
		{"a proxy's admins without the proxy", "http: {proxy: {admins: [alice]}}", nil, []string{
			"http.proxy.networks: http.proxy.operators and http.proxy.admins have no effect without it; set it to the networks of the proxy, such as 10.0.0.7/32, or remove them"}},
		{"a proxy's operators without the proxy", "http: {proxy: {operators: [\"group:ops\"]}}", nil, []string{"http.proxy.networks: http.proxy.operators and http.proxy.admins have no effect without it;"}},
		{"token", "admin_token: fifteen-letters", nil, []string{"admin_token: 15 characters can be guessed; use 16 or more"}},
		{"jitter", "retry: {jitter: 1.01}", nil, []string{"retry.jitter: 1.01 is out of range; use a number between 0 and 1"}},
		{"not a number", "retry: {jitter: .nan}", nil, []string{"retry.jitter: NaN is out of range"}},
		{"broker", "kafka: {brokers: [localhost]}", nil, []string{`kafka.brokers: "localhost" is not host:port; use one such as`}},
		{"own topics", "kafka: {topics: [pacer.jobs, pacer.dead, pacer.timer.5s]}", nil, []string{
			"kafka.topics: pacer.dead is a topic of pacer's own", "kafka.topics: pacer.timer.5s is a topic of pacer's own"}},
		{"topic", "kafka: {topics: [\"a b\", c, c]}", nil, []string{`kafka.topics: "a b" is not a name`, "kafka.topics: c is listed twice"}},
		{"timers", "kafka: {timer_delays: [5s, 0s, 5s]}", nil, []string{"kafka.timer_delays: 0s is out", "kafka.timer_delays: 5s is listed twice"}},
		{"sasl", "kafka: {sasl: {mechanism: md5, username: u}}", nil, []string{
			`kafka.sasl.mechanism: there is no "md5"; use one of plain,`, "kafka.sasl.username: required together"}},
		{"tls", "redis: {tls: {cert_file: x}}", nil, []string{"redis.tls.cert_file: goes together", "redis.tls.enabled: the other keys"}},
		{"redis mode", "redis: {addrs: [a:1, b:2]}", nil, []string{"redis.mode: required with several addresses;"}},
		{"redis single", "redis: {addrs: [a:1, b:2], mode: single}", nil, []string{"redis.mode: single takes one address"}},
		{"redis sentinel", "redis: {addrs: [a:1], mode: sentinel}", nil, []string{"redis.master_name: goes together"}},
		{"redis address", "redis: {addrs: [localhost]}", nil, []string{`redis.addrs: "localhost" is not host:port; use one such as`}},
		{"redis ring", "redis: {mode: ring, addrs: [a:1, b]}", nil, []string{`redis.addrs: "b" is not host:port; use one such as`}},
		{"redis ring, one server twice", "redis: {mode: ring, addrs: [a:1, \"b:2\", \"b:2\"]}", nil, []string{"redis.addrs: b:2 is listed twice"}},
		{"redis ring, shards", "redis: {mode: ring, addrs: [a:1, b:2, c:3], shards: 2}", nil, []string{
			"redis.shards: 2 leaves some of the 3 addresses without any; use at least 3, or 0"}},
		{"dedupe", "dedupe: {ttl: 10ms, on_store_failure: local-share}", nil, []string{
			"dedupe.ttl: 10ms is out of range; use a duration between 1s and 30d, or 0",
			`dedupe.on_store_failure: there is no "local-share"; use one of closed, open`}},
		{"results", "results: {headers: [tenant, tenant, pacer-weight, \"\"]}", nil, []string{
			"results.headers: tenant is listed twice", `results.headers: "pacer-weight" is not the name of a producer's header; use one such as tenant`,
			`results.headers: "" is not`, "results.headers: no results are written; set kafka.results to true"}},
		{"too many headers", "kafka: {results: true}\nresults: {headers: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]}", nil, []string{"results.headers: 17 of them; use at most 16"}},
		{"redis shards", "redis: {shards: 2000}", nil, []string{"redis.shards: 2000 is out of range; use a number between 0 and 1024"}},
		{"redis cluster", "redis: {mode: cluster, db: 1}", nil, []string{"redis.db: a cluster has database 0 only"}},
		{"sentinel without sentinels", "redis: {sentinel_password: hunter22}", nil, []string{
			"redis.sentinel_password: there are sentinels in mode sentinel only;"}},
		{"sentinel without password", "redis: {mode: sentinel, master_name: m, sentinel_username: u}", nil, []string{
			"redis.sentinel_password: required with redis.sentinel_username;"}},
		{"eventual", "eventual: {roots: [a:1, b, a:1], sync: 0s, low_burst: 5s}", nil, []string{
			`eventual.roots: "b" is not host:port;`, "eventual.roots: a:1 is listed twice",
			"eventual.sync: 0s is out of range;", "eventual.low_burst: 5s is above eventual.high_burst, 2s;"}},
		{"too many roots", "eventual: {roots: [" + strings.TrimSuffix(strings.Repeat("a:1, ", 17), ", ") + "]}", nil,
			append([]string{"eventual.roots: 17 of them; use at most 16"}, slices.Repeat([]string{"eventual.roots: a:1 is listed twice"}, 16)...)},
		{"dsn", "postgres: {dsn: \"postgres://u:hunter22@h:port/x\"}", nil, []string{"postgres.dsn: not a connection string;"}},
		{"quanta", "pacing: {min_quantum: 500ms, max_quantum: 100ms}", nil, []string{"pacing.min_quantum: 500ms is above"}},
		{"listen", "http: {listen: \"8080\"}", nil, []string{`http.listen: "8080" is not host:port;`}},
		{"metrics listen", "http: {metrics_listen: \"9464\"}", nil, []string{`http.metrics_listen: "9464" is not host:port; use one such as`}},
		{"metrics at the address of the rest", "http: {listen: \":8080\", metrics_listen: \":8080\"}", nil, []string{"http.metrics_listen: :8080 is http.listen; use another port, or remove it"}},
		{"a proxy at every address", "http: {proxy: {networks: [0.0.0.0/0, \"::/0\"]}}", nil, []string{
			"http.proxy.networks: \"0.0.0.0/0\" is not a network; use one such as", "http.proxy.networks: \"::/0\" is not a network; use one such as"}},
		{"level", "log: {level: loud}", nil, []string{`log.level: there is no "loud"; use one of debug,`}},
		{"secret file", "redis: {password: \"file:" + missing + "\"}", nil, []string{"redis.password: cannot read the secret: open " + missing}},
		{"empty secret file", "admin_token: \"file:" + empty + "\"", nil, []string{"admin_token: the file " + empty + " is empty"}},
		{"number as a secret", "redis: {password: 0123}", nil, []string{"redis.password: must be text; put it in quotes"}},
		{"keys and types, which are judged first, since defaults stand for what could not be read", `
kafka: {lanez: 3, group: "", max_record_bytes: much}
retry: {max: never, initial: 1h}
default_sink: receiver
sinks:
  receiver: {type: htpp, url: "http://a"}
  hooks: {type: http, ulr: "http://a", max_in_flight: 0}
`, nil, []string{
			"kafka.lanez: there is no such key; use one of", "kafka.max_record_bytes: ", "retry.max: ",
			"sinks.hooks.ulr: there is no such key; use one of", `sinks.receiver.type: there is no type "htpp"; use one of`}},
		{"then all values", `
kafka: {group: ""}
redis: {password: "file:` + missing + `"}
postgres: {dsn: "file:` + missing + `"}
retry: {jitter: 2}
sinks: {hooks: {type: http, max_in_flight: 0}}
`, nil, []string{
			"redis.password: cannot read the secret: open " + missing, "postgres.dsn: cannot read the secret", "retry.jitter: 2 is out of range",
			"kafka.group: must have 1 to 255 characters", "sinks.hooks.url: required", "sinks.hooks.max_in_flight: 0 is out of range"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := load(t, tt.text, tt.env...)
			if err == nil {
				t.Fatal("no error")
			}
			if !errors.As(err, &UsageError{}) {
				t.Errorf("%v is no UsageError", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d lines, want %d: %q", len(lines), len(tt.want), lines)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("line %q, want %q", lines[i], want)
				}
				if strings.Contains(lines[i], "hunter22") {
					t.Errorf("a secret shows: %q", lines[i])
				}
			}
		})
	}
}

// TestProblemsAreBounded: a file with many has a number that can be read, and says how many more there are.
func TestProblemsAreBounded(t *testing.T) {
	var many strings.Builder
	for i := range 2 * maxProblems {
		fmt.Fprintf(&many, "qqqqq%d: 1\n", i)
	}
	_, _, err := load(t, many.String())
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != maxProblems+1 || lines[maxProblems] != "50 more; correct these first" {
		t.Errorf("%d lines", len(lines))
	}
}

// TestBoundsOfSinks: each value of a sink that has bounds of its own is refused beyond them, with the bounds.
func TestBoundsOfSinks(t *testing.T) {
	for text, want := range map[string]string{
		"log, max_in_flight: -1":                      "max_in_flight: -1 is out of range; use a number between 1 and 65536",
		"http, timeout: 0s":                           "timeout: 0s is out of range; use a duration between 1ms and 10m",
		"http, timeout: 1h":                           "timeout: 1h is out of range;",
		"http, max_retry_after: 0s":                   "max_retry_after: 0s is out of range; use a duration between 1s and 1d",
		"http, max_conn_age: 1ms":                     "max_conn_age: 1ms is out of range; use a duration between 1s and 1d, or 0 for no limit",
		"http, max_conn_age: 0s":                      "",
		"http, disable_after: 1ms":                    "disable_after: 1ms is out of range; use a duration between 1s and 365d, or 0 for never",
		"http, cloudevents: batch":                    `cloudevents: there is no "batch"; use one of binary, structured`,
		"http, oauth2: {auth: query}":                 `oauth2.auth: there is no "query"; use one of header, body`,
		"steps, deadline: 0s":                         "deadline: 0s is out of range;",
		"steps, polls_per_second: 0":                  "polls_per_second: 0 is out of range;",
		"steps, steps: [{id: a, poll: {every: 1ms}}]": "steps.0.poll.every: 1ms is out of range; use a duration between 100ms and 30d",
		"apns, environment: x":                        `environment: there is no "x"; use one of production, sandbox`,
		"apns, store_for: 31d":                        "store_for: 31d is out of range;",
		"apns, connections: 0":                        "connections: 0 is out of range;",
		"hms, version: v9":                            `version: there is no "v9"; use one of v3, v2, v1`,
		"kafka, timeout: 1m":                          "timeout: 1m is out of range; use a duration between 100ms and 15s",
		"kafka, linger: 2s":                           "linger: 2s is out of range;",
		"kafka, compression: gzip":                    `compression: there is no "gzip"; use one of none, zstd`,
		"kafka, sasl_mechanism: x":                    `sasl_mechanism: there is no "x"; use one of plain,`,
		"smtp, tls: 'yes'":                            `tls: there is no "yes"; use one of starttls, implicit, none`,
		"smtp, auth: ntlm":                            `auth: there is no "ntlm"; use one of auto,`,
		"smtp, retry_after: 0s":                       "retry_after: 0s is out of range;",
		"smev, mode: x":                               `mode: there is no "x"; use one of adapter, direct`,
		"smev, version: '1.4'":                        `version: there is no "1.4"; use one of 1.1, 1.2, 1.3`,
		"smev, protocol: x, wait: x, deadline: 91d":   `wait: there is no "x"; use one of accepted, response`,
		"smev, poll: {every: 0s, per_second: 0}":      "poll.per_second: 0 is out of range;",
		"smev, collect: {interval: 0s, parallel: 0}":  "collect.interval: 0s is out of range;",
		"webpush, guard: {ports: [0]}":                "guard.ports: 0 is out of range; use a number between 1 and 65535",
		"kafka, brokers: ['a:1', b]":                  `brokers: "b" is not host:port; use one such as 127.0.0.1:9092`,
		"kafka, topic: a b":                           `topic: "a b" is not a name for a topic; use one such as`,
		"smtp, addr: smtp.example.com":                `addr: "smtp.example.com" is not host:port; use one such as smtp.example.com:587`,
		"smev, responses: a b":                        `responses: "a b" is not a name for a topic;`,
		"webpush, ttl: 61d":                           "ttl: 61d is out of range; use a duration between 0s and 60d",
	} {
		_, _, err := load(t, "sinks: {a: {type: "+text+"}}")
		if got := fmt.Sprint("\n", err); want != "" && !strings.Contains(got, "\nsinks.a."+want) || want == "" && strings.Contains(got, strings.Fields(text)[1]) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A command judges what it uses: a secret of a sink, of Redis or of the console does not concern one that reads the database.
func TestOnlyWhatIsUsedIsJudged(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	path := write(t, "pacer.yaml", `
kafka: {brokers: ["a:1"], sasl: {mechanism: plain, username: u, password: "file:`+missing+`"}}
redis: {addrs: ["a:1"], password: "file:`+missing+`"}
postgres: {dsn: "postgres://u@h/d"}
admin_token: "file:`+missing+`"
sinks:
  telegram: {type: telegram}
  hooks: {type: http, url: "http://a", bearer: "file:`+missing+`"}
  out: {type: log}
`)
	from := Source{Path: path, Explicit: true}
	for _, tt := range []struct {
		needs []Section
		want  []string
	}{
		{nil, nil},
		{[]Section{NeedPostgres}, nil},
		{[]Section{NeedSink("out")}, nil},
		{[]Section{NeedSink("hooks")}, []string{"sinks.hooks.bearer: cannot read"}},
		{[]Section{NeedKafka}, []string{"kafka.sasl.password: cannot read"}},
		{[]Section{NeedTopics}, []string{"kafka.sasl.password: cannot read"}},
		{[]Section{NeedRedis, NeedPostgres}, []string{"redis.password: cannot read"}},
		{[]Section{NeedKafka, NeedRedis, NeedPostgres, NeedSinks, NeedServer}, []string{
			"kafka.sasl.password: ", "redis.password: ", "admin_token: ", "sinks.hooks.bearer: ", "sinks.telegram.token: required"}},
	} {
		cfg, _, err := LoadFor(from, tt.needs...)
		if len(tt.want) == 0 {
			if err != nil || cfg.Fault(NeedRedis) == nil || cfg.Fault(NeedPostgres) != nil || len(cfg.Sinks) != 3 {
				t.Errorf("%v: %v", tt.needs, err)
			}
			continue
		}
		if err == nil || !slices.EqualFunc(strings.Split(err.Error(), "\n"), tt.want, strings.HasPrefix) {
			t.Errorf("%v: %v, want %v", tt.needs, err, tt.want)
		}
	}
	if _, _, err := LoadFor(Source{Path: write(t, "pacer.yaml", "sinks: {a: {type: http, ulr: x}}"), Explicit: true}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a key that does not exist: %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, _, err := Load(path, false, nil); err != nil {
		t.Errorf("not asked for by name: %v", err)
	}
	if _, _, err := Load(path, true, nil); err == nil || !strings.HasPrefix(err.Error(), "--config: open "+path) {
		t.Errorf("asked for by name: %v", err)
	}
	if _, _, err := Load(t.TempDir(), false, nil); err == nil {
		t.Error("a directory was read as a file")
	}
}

func TestWarnings(t *testing.T) {
	_, warnings, err := load(t, "sinks: {a: {type: log}, b: {type: log}}",
		"PACER_KAFKA_BROKRES=a:1", "PACER_WHATEVER=1", "PACER_SINKS_A=1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"PACER_KAFKA_BROKRES: there is no such setting; it is ignored", "PACER_SINKS_A:",
		"PACER_WHATEVER: there is no such setting; it is ignored", "default_sink: not set"}
	if !slices.EqualFunc(warnings, want, strings.HasPrefix) {
		t.Errorf("warnings %q", warnings)
	}
}

// A command that has nothing to do with sinks says nothing of them; those that serve or check them do.
func TestWarningsConcernTheCommand(t *testing.T) {
	from := Source{Path: write(t, "pacer.yaml", "kafka: {brokers: [a:1]}\npostgres: {dsn: 'postgres://p@a/p'}\nsinks: {a: {type: log}, b: {type: log}}"), Explicit: true}
	for _, tt := range []struct {
		needs []Section
		want  int
	}{{nil, 0}, {[]Section{NeedKafka}, 0}, {[]Section{NeedPostgres}, 0}, {[]Section{NeedSink("a")}, 0}, {[]Section{NeedKafka, NeedSinks}, 1}} {
		if _, warnings, err := LoadFor(from, tt.needs...); err != nil || len(warnings) != tt.want {
			t.Errorf("%q: %q, %v", tt.needs, warnings, err)
		}
	}
}

// The project's own script has variables that are no settings, and that no command warns of.
func TestVariablesOfTheScriptAreKnown(t *testing.T) {
	var environ []string
	for _, name := range glob(t, "../../scripts/services/*.sh", "../../scripts/services.sh") {
		for _, variable := range regexp.MustCompile(`PACER_[A-Z_]+`).FindAllString(readFile(t, name), -1) {
			environ = append(environ, variable+"=yes")
		}
	}
	if !slices.Contains(environ, "PACER_STACK=yes") {
		t.Fatalf("the scripts have %q", environ)
	}
	for _, variable := range environ {
		if _, warnings, _ := load(t, "", variable); len(warnings) > 0 {
			t.Errorf("%s: %q", variable, warnings)
		}
	}
}

func TestRequiredSettings(t *testing.T) {
	tests := []struct {
		sections []Section
		want     []string
	}{
		{nil, nil},
		{[]Section{NeedPostgres}, []string{"postgres.dsn: required; set it in pacer.yaml or PACER_POSTGRES_DSN"}},
		{[]Section{NeedKafka, NeedTopics}, []string{"kafka.brokers: required; set it in pacer.yaml or PACER_KAFKA_BROKERS"}},
		{[]Section{NeedRedis, NeedSinks}, []string{"redis.addrs: required; set it in pacer.yaml or PACER_REDIS_ADDRS", "sinks: at least one"}},
	}
	for _, tt := range tests {
		_, _, err := LoadFor(Source{Path: write(t, "pacer.yaml", ""), Explicit: true}, tt.sections...)
		if len(tt.want) == 0 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var p Problems
		if !errors.As(err, &p) || !slices.EqualFunc(p, tt.want, strings.HasPrefix) || !errors.As(err, &UsageError{}) {
			t.Errorf("%v: %v", tt.sections, err)
		}
	}
}

func TestSecretsComeFromFilesAndNeverShow(t *testing.T) {
	ref := func(name, secret string) string { return "file:" + write(t, name, secret+"\n") }
	cfg := mustLoad(t, fmt.Sprintf(`
kafka: {sasl: {mechanism: plain, username: u, password: %q}}
redis: {mode: sentinel, master_name: m, password: %q, sentinel_password: %q}
postgres: {dsn: %q}
admin_token: swordfish4-swordfish4
sinks: {a: {type: http, url: %q, headers: {Authorization: %q}}}
`, ref("1", "swordfish1"), ref("2", "swordfish2"), ref("8", "swordfish8"), ref("3", "postgres://p:swordfish3@h/d"),
		ref("5", "http://me:swordfish5@h/p?t=swordfish6"), ref("7", "swordfish7")))
	if cfg.Kafka.SASL.Password.Reveal() != "swordfish1" || cfg.Redis.Password != "swordfish2" ||
		cfg.Redis.SentinelPassword != "swordfish8" ||
		cfg.Postgres.DSN != "postgres://p:swordfish3@h/d" || cfg.Sinks["a"].(*http.Config).Headers["Authorization"] != "swordfish7" {
		t.Error("a reference was not followed")
	}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("loaded", "config", cfg, "kafka", cfg.Kafka, "dsn", cfg.Postgres.DSN, "sinks", cfg.Sinks)
	asJSON, err := json.Marshal(map[string]any{"kafka": cfg.Kafka, "redis": cfg.Redis, "dsn": cfg.Postgres})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		logged.String(), string(asJSON), cfg.String(), fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg),
		fmt.Sprintf("%v %+v %#v", cfg.Kafka, cfg.Redis, cfg.Postgres), fmt.Sprintf("%v %#v", cfg.Sinks, cfg.Sinks["a"]),
	} {
		if i := strings.Index(s, "swordfish"); i >= 0 {
			t.Errorf("a secret shows: ...%s", s[max(0, i-40):])
		}
	}
	for _, want := range []string{"kafka.sasl.password: ***\n", "sinks.a.url: ***\n", "sinks.a.headers: {Authorization: ***}\n",
		"sinks.a.type: http\n", "pacing.max_buffer_bytes: 64MiB\n", "kafka.timer_delays: 5s,30s,5m,30m,6h\n"} {
		if !strings.Contains(cfg.String(), want) {
			t.Errorf("%q is missing from\n%s", want, cfg)
		}
	}
}

// rotated is a configuration that reads its secrets again.
type rotated struct {
	Token   string            `yaml:"token" secret:"value"`
	Headers map[string]string `yaml:"headers" secret:"value"`

	again map[string]func() (string, error)
}

func (r *rotated) SecretFrom(key string, read func() (string, error)) { r.again[key] = read }

// TestSecretsCanBeReadAgain: a sink learns how to read what came from a file, and of nothing else.
func TestSecretsCanBeReadAgain(t *testing.T) {
	from := write(t, "token", "opensesame")
	cfg := &rotated{"file:" + from, map[string]string{"X-Key": "file:" + from, "X-Other": "plain"}, map[string]func() (string, error){}}
	l := &loader{schema: schemaOf("", &struct{}{}), sinks: []*schema{schemaOf("sinks.a.", cfg)}, content: map[string]string{}}
	l.resolveSecrets()
	if len(l.problems) > 0 || cfg.Token != "opensesame" || cfg.Headers["X-Key"] != "opensesame" || len(cfg.again) != 2 {
		t.Fatalf("problems %q, token %q, headers %q", l.problems, cfg.Token, cfg.Headers)
	}
	if err := os.WriteFile(from, []byte("swordfish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"token", "headers.X-Key"} {
		if value, err := cfg.again[key](); err != nil || value != "swordfish" {
			t.Errorf("%s: %q, %v", key, value, err)
		}
	}
}

func TestLogger(t *testing.T) {
	for format, want := range map[string]string{"json": `"msg":"seen"`, "text": "msg=seen"} {
		var out strings.Builder
		l := Log{Level: "warn", Format: format}.Logger(&out)
		l.Info("hidden")
		l.Warn("seen")
		if s := out.String(); !strings.Contains(s, want) || strings.Contains(s, "hidden") {
			t.Errorf("%s: %q", format, s)
		}
	}
}

func TestTLSClient(t *testing.T) {
	if c, err := (TLS{}).Client(); c != nil || err != nil {
		t.Errorf("off: %v, %v", c, err)
	}
	if c, err := (TLS{Enabled: true, ServerName: "k"}).Client(); err != nil || c.ServerName != "k" {
		t.Errorf("on: %v, %v", c, err)
	}
	for want, cfg := range map[string]TLS{
		"ca_file: open":   {Enabled: true, Certificates: access.Certificates{CAFile: "/nowhere"}},
		"ca_file: ":       {Enabled: true, Certificates: access.Certificates{CAFile: write(t, "ca", "no PEM")}},
		"cert_file: open": {Enabled: true, Certificates: access.Certificates{CertFile: "/nowhere", KeyFile: "/nowhere"}},
	} {
		if _, err := cfg.Client(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSinksDoNotWriteToPacersTopics: jobs would come back, or take the place of others.
func TestSinksDoNotWriteToPacersTopics(t *testing.T) {
	for topic, want := range map[string]string{
		"orders": "", "p.jobs": "", "p.lanes": "topic of pacer's own", "p.dead": "topic of pacer's own", "p.timer.5s": "topic of pacer's own",
		"p.results": "topic of pacer's own", "p.replays": "topic of pacer's own", "in": "jobs are read from",
	} {
		_, _, err := load(t, `
kafka: {topics: [in], topic_prefix: p.}
sinks: {out: {type: kafka, brokers: ["elsewhere:9092"], topic: "`+topic+`"}}`)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "sinks.out.topic: ")) {
			t.Errorf("%s: %v", topic, err)
		}
	}
}

// TestPagesDescribeEveryKey keeps docs/configuration.md and the pages of docs/sinks in step: a row for each key, with its default.
func TestPagesDescribeEveryKey(t *testing.T) {
	page := readFile(t, "../../docs/configuration.md")
	const rule = "`kafka.topic_prefix` is `PACER_KAFKA_TOPIC_PREFIX`: `PACER_`, then the key in capitals with `_` for each dot"
	if !strings.Contains(page, rule) {
		t.Error("the page lacks the rule for names of variables")
	}
	for _, leaf := range schemaOf("", Default()).leaves {
		if want := "PACER_" + strings.ToUpper(strings.ReplaceAll(leaf.path, ".", "_")); EnvName(leaf.path) != want {
			t.Errorf("the variable of %s is %s, by the rule %s", leaf.path, EnvName(leaf.path), want)
		}
		def, ok := defaultIn(page, leaf.path)
		empty := leaf.shown() == "" || leaf.value.Kind() == reflect.Map || leaf.value.IsZero() // what the page says of an empty default is prose
		if !ok || !empty && def != "`"+leaf.shown()+"`" {
			t.Errorf("configuration.md: a row of %s: %t, with the default %q, want %q", leaf.path, ok, def, leaf.shown())
		}
	}
	for _, kind := range sink.Kinds() {
		name := kind
		if kind == "discard" {
			name = "log" // its page has the keys of both
		}
		cfg, _ := sink.NewConfig(kind)
		page := readFile(t, "../../docs/sinks/"+name+".md")
		for _, leaf := range schemaOf("sinks.<name>.", cfg).leaves {
			key := strings.TrimPrefix(leaf.path, "sinks.<name>.")
			def, ok := defaultIn(page, key)
			if !ok || !leaf.value.IsZero() && !strings.Contains(def, "`"+leaf.shown()+"`") {
				t.Errorf("sinks/%s.md: a row of %s: %t, with the default %q, want %q", name, key, ok, def, leaf.shown())
			}
		}
	}
}

// defaultIn returns the default in the row of a key. A row may be about several keys, and have a default for each.
func defaultIn(page, key string) (def string, ok bool) {
	for line := range strings.SplitSeq(page, "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) < 3 {
			continue
		}
		keys, defaults := strings.Split(strings.TrimPrefix(cells[0], "| "), ", "), strings.Split(cells[1], ", ")
		i := slices.Index(keys, "`"+key+"`")
		switch {
		case i >= 0 && len(defaults) == len(keys):
			return defaults[i], true
		case i >= 0:
			return cells[1], true
		}
	}
	return "", false
}

// Values of another kind than a section are an error in words, or mean nothing.
func TestOddFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"null":                         "",
		"# nothing":                    "",
		"[a, b]":                       "must consist of sections",
		"kafka: {group: a":             "is not valid YAML",
		"max_weight: 1\nmax_weight: 2": "is not valid YAML",
		"7: x":                         "7: there is no such key",
		"sinks: {1: {type: log}}":      "",
		"---\nmax_weight: 1\n":         "",
		"max_weight: 1\n---\n":         "has a line --- and sections behind it",
		"{}\n---\nhttp: {listen: off}": "has a line --- and sections behind it",
		"{}\n---\nhttp: {":             "has a line --- and sections behind it",
		"max_weight: 1\n...\n":         "",
		"kafka: {}\nredis:\n  # the password\n  password: *hunter22\n":// an unquoted secret is an alias
		"is not valid YAML: a value that begins with * must be put in quotes (line 4)",
	} {
		_, _, err := load(t, text)
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || !errors.As(err, &UsageError{})) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
