package app

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/sink"
)

// Section is a part of the configuration that a command cannot do without.
type Section string

// The sections, by the service that they reach.
const (
	NeedKafka    Section = "kafka"    // brokers
	NeedTopics   Section = "topics"   // brokers and ingress topics
	NeedRedis    Section = "redis"    // addresses
	NeedPostgres Section = "postgres" // DSN
	NeedSinks    Section = "sinks"    // at least one
)

// Require says whether the sections hold what has no default: nil, or a UsageError around Problems.
func (c *Config) Require(sections ...Section) error {
	var p Problems
	need := func(section []Section, missing bool, path string) {
		for _, s := range section {
			if missing && slices.Contains(sections, s) {
				p = append(p, fmt.Sprintf("%s: required; set it in pacer.yaml or %s", path, envName(path)))
				return
			}
		}
	}
	need([]Section{NeedKafka, NeedTopics}, len(c.Kafka.Brokers) == 0, "kafka.brokers")
	need([]Section{NeedTopics}, len(c.Kafka.Topics) == 0, "kafka.topics")
	need([]Section{NeedRedis}, len(c.Redis.Addrs) == 0, "redis.addrs")
	need([]Section{NeedPostgres}, c.Postgres.DSN == "", "postgres.dsn")
	if slices.Contains(sections, NeedSinks) && len(c.Sinks) == 0 {
		p = append(p, "sinks: at least one is required; set one in pacer.yaml, such as "+
			`receiver: {type: http, url: "http://127.0.0.1:9000/deliver"}, or with PACER_SINKS_RECEIVER_TYPE and PACER_SINKS_RECEIVER_URL`)
	}
	if len(p) > 0 {
		return UsageError{p}
	}
	return nil
}

// Problems lists what is wrong with the values that are set. What is not set but required depends on the command: see
// Require.
func (c *Config) Problems() Problems {
	v := &validator{}
	v.kafka(c)
	v.redis(&c.Redis)
	v.eventual(c)
	v.postgres(&c.Postgres)
	v.pacing(&c.Pacing)
	v.retry(&c.Retry)
	v.dedupe(&c.Dedupe)
	if c.HTTP.Listen != "" {
		v.address("http.listen", c.HTTP.Listen, `use one such as 127.0.0.1:8080, or "off"`)
	}
	v.duration("unknown_grace", c.UnknownGrace, time.Second, 30*24*time.Hour)
	between(v, "max_weight", c.MaxWeight, 1, delivery.MaxGrant)
	v.sinks(c)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	v.duration("shutdown_timeout", c.ShutdownTimeout, time.Second, 10*time.Minute)
	v.duration("watchdog", c.Watchdog, 15*time.Second, 24*time.Hour)
	return v.problems
}

// warnings are what is allowed and probably not meant.
func (c *Config) warnings() []string {
	if len(c.Sinks) > 1 && c.DefaultSink == "" {
		return []string{"default_sink: not set although there are several sinks; campaigns that name no sink are held"}
	}
	return nil
}

// validator collects problems.
type validator struct{ problems Problems }

func (v *validator) add(path, format string, args ...any) {
	v.problems = append(v.problems, path+": "+fmt.Sprintf(format, args...))
}

func (v *validator) duration(path string, d, least, most time.Duration) {
	if d < least || d > most {
		v.add(path, "%s is out of range; use a duration between %s and %s", d, least, most)
	}
}

func between[T int | int64 | float64 | Size](v *validator, path string, n, least, most T) {
	if in := n >= least && n <= most; !in { // NaN is out of range as well
		v.add(path, "%v is out of range; use a number between %v and %v", n, least, most)
	}
}

func (v *validator) oneOf(path, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	v.add(path, "there is no %s; use one of %s", quoted(value), strings.Join(allowed, ", "))
}

func (v *validator) address(path, address, remedy string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		v.add(path, "%s is not host:port; %s", quoted(address), remedy)
	}
}

var (
	topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	sinkPattern  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)
)

func validSinkName(name string) bool { return sinkPattern.MatchString(name) }

const (
	maxPrefix   = 200 // of a topic's 249 characters; the rest is for "timer.30m" and the like
	maxLanes    = 10_000
	maxReplicas = 15
	maxTimers   = 20
	maxShards   = 1024
	maxRoots    = 16
)

func (v *validator) kafka(c *Config) {
	k := &c.Kafka
	for _, b := range k.Brokers {
		v.address("kafka.brokers", b, "use one such as 127.0.0.1:9092")
	}
	for i, t := range k.Topics {
		switch {
		case !topicPattern.MatchString(t):
			v.add("kafka.topics", "%s is not a name for a topic; use letters, digits, dots, - and _", quoted(t))
		case ownedTopic(t, k.TopicPrefix):
			v.add("kafka.topics", "%s is a topic of pacer's own; name the topic your producers write to", t)
		case slices.Contains(k.Topics[:i], t):
			v.add("kafka.topics", "%s is listed twice; name it once", t)
		}
	}
	if k.Group == "" || len(k.Group) > 255 {
		v.add("kafka.group", "must have 1 to 255 characters, such as pacer")
	}
	if len(k.TopicPrefix) > maxPrefix || !topicPattern.MatchString(k.TopicPrefix+"dead") {
		v.add("kafka.topic_prefix", "%s cannot begin a topic's name; use at most %d letters, digits, dots, - and _",
			quoted(k.TopicPrefix), maxPrefix)
	}
	between(v, "kafka.lanes", k.Lanes, 1, maxLanes)
	between(v, "kafka.replication_factor", k.ReplicationFactor, 0, maxReplicas)
	v.timers(k.TimerDelays)
	v.tls("kafka.tls", &k.TLS)
	if s := k.SASL; s.Mechanism != "" {
		v.oneOf("kafka.sasl.mechanism", s.Mechanism, "plain", "scram-sha-256", "scram-sha-512")
		if s.Username == "" || s.Password == "" {
			v.add("kafka.sasl.username", "required together with kafka.sasl.password; set both or remove kafka.sasl.mechanism")
		}
	} else if s.Username != "" || s.Password != "" {
		v.add("kafka.sasl.mechanism", "required with a username or password; use one of plain, scram-sha-256, scram-sha-512")
	}
}

// ownedTopic tells whether pacer itself writes the topic: reading it as ingress would feed pacer its own output.
func ownedTopic(topic, prefix string) bool {
	rest, ok := strings.CutPrefix(topic, prefix)
	return ok && (rest == "lanes" || rest == "dead" || rest == "replays" || rest == "results" || strings.HasPrefix(rest, "timer."))
}

func (v *validator) timers(delays []time.Duration) {
	const path = "kafka.timer_delays"
	if len(delays) == 0 || len(delays) > maxTimers {
		v.add(path, "%d delays; use 1 to %d, such as 5s,30s,5m,30m,6h", len(delays), maxTimers)
	}
	for i, d := range delays {
		if d < time.Millisecond || d > 7*24*time.Hour || d%time.Millisecond != 0 {
			v.add(path, "%s is out of range; use whole milliseconds between 1ms and 168h", d)
		}
		if slices.Contains(delays[:i], d) {
			v.add(path, "%s is listed twice; name it once", d)
		}
	}
}

func (v *validator) tls(path string, t *TLSConfig) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		v.add(path+".cert_file", "goes together with %s.key_file; set both or neither", path)
	}
	if !t.Enabled && *t != (TLSConfig{}) {
		v.add(path+".enabled", "the other keys of %s have no effect without it; set it to true or remove them", path)
	}
}

func (v *validator) redis(r *RedisConfig) {
	v.redisMode(r)
	v.redisAddrs(r)
	if (r.Mode == limits.ModeSentinel) != (r.MasterName != "") {
		v.add("redis.master_name", "goes together with redis.mode: sentinel; set both or neither")
	}
	v.sentinels(r)
	between(v, "redis.shards", r.Shards, 0, maxShards)
	if r.Mode == limits.ModeRing && r.Shards > 0 && r.Shards < len(r.Addrs) {
		v.add("redis.shards", "%d leaves some of the %d addresses without any; use at least %d, or 0", r.Shards, len(r.Addrs), len(r.Addrs))
	}
	if strings.ContainsAny(r.KeyPrefix, "{} \t\r\n") || len(r.KeyPrefix) > maxPrefix {
		v.add("redis.key_prefix", "must have at most %d characters, without spaces and braces, which would decide a key's shard", maxPrefix)
	}
	between(v, "redis.db", r.DB, 0, 1<<15)
	if r.Mode == limits.ModeCluster && r.DB != 0 {
		v.add("redis.db", "a cluster has database 0 only; remove it")
	}
	v.tls("redis.tls", &r.TLS)
}

func (v *validator) redisMode(r *RedisConfig) {
	if r.Mode == "" {
		v.add("redis.mode", "required with several addresses; use one of cluster, sentinel, ring")
		return
	}
	v.oneOf("redis.mode", r.Mode, limits.ModeSingle, limits.ModeCluster, limits.ModeSentinel, limits.ModeRing)
	if r.Mode == limits.ModeSingle && len(r.Addrs) > 1 {
		v.add("redis.mode", "single takes one address and there are %d; use one of cluster, sentinel, ring", len(r.Addrs))
	}
}

// redisAddrs checks each address. Those of a ring may name a replica, and none may occur twice there: it would hold two
// parts of the counts, or stand in for itself.
func (v *validator) redisAddrs(r *RedisConfig) {
	const path = "redis.addrs"
	if r.Mode != limits.ModeRing {
		for _, a := range r.Addrs {
			v.address(path, a, "use one such as 127.0.0.1:6379; master|replica is for mode ring")
		}
		return
	}
	var servers []string
	for _, entry := range r.Addrs {
		pair := strings.Split(entry, "|")
		if len(pair) > 2 {
			v.add(path, "%s names %d servers; use master or master|replica", quoted(entry), len(pair))
		}
		servers = append(servers, pair...)
	}
	v.servers(path, servers, "use one such as 127.0.0.1:6379, or 127.0.0.1:6379|127.0.0.1:6380 with a replica")
}

// servers checks addresses that must all differ.
func (v *validator) servers(path string, addrs []string, remedy string) {
	for i, a := range addrs {
		v.address(path, a, remedy)
		if slices.Contains(addrs[:i], a) {
			v.add(path, "%s is listed twice; name it once", a)
		}
	}
}

func (v *validator) sentinels(r *RedisConfig) {
	switch {
	case r.SentinelUsername != "" && r.SentinelPassword == "":
		v.add("redis.sentinel_password", "required with redis.sentinel_username; set both or neither")
	case r.SentinelPassword != "" && r.Mode != limits.ModeSentinel:
		v.add("redis.sentinel_password", "there are sentinels in mode sentinel only; remove it, or set redis.mode: sentinel")
	}
}

func (v *validator) eventual(c *Config) {
	const path = "eventual.roots"
	e := &c.Eventual
	if len(e.Roots) > maxRoots {
		v.add(path, "%d roots; use at most %d", len(e.Roots), maxRoots)
	}
	if !slices.Equal(e.Roots, c.Redis.Addrs) { // which have been looked at
		v.servers(path, e.Roots, "use one such as 127.0.0.1:6379")
	}
	v.duration("eventual.sync", e.Sync, 50*time.Millisecond, time.Minute)
	v.duration("eventual.low_burst", e.LowBurst, 0, time.Hour)
	v.duration("eventual.high_burst", e.HighBurst, time.Millisecond, time.Hour)
	if e.LowBurst > e.HighBurst {
		v.add("eventual.low_burst", "%s is above eventual.high_burst, %s; lower it", e.LowBurst, e.HighBurst)
	}
}

func (v *validator) postgres(p *PostgresConfig) {
	if p.DSN == "" {
		return
	}
	// The parser's own error may quote parts of the DSN, and with them the password.
	if _, err := pgx.ParseConfig(p.DSN.Reveal()); err != nil {
		v.add("postgres.dsn", "not a PostgreSQL connection string; use one such as postgres://user:password@127.0.0.1:5432/pacer")
	}
}

func (v *validator) pacing(p *PacingConfig) {
	v.duration("pacing.min_quantum", p.MinQuantum, 10*time.Millisecond, time.Second)
	v.duration("pacing.max_quantum", p.MaxQuantum, 10*time.Millisecond, time.Second)
	if p.MinQuantum > p.MaxQuantum {
		v.add("pacing.min_quantum", "%s is above pacing.max_quantum, %s; lower it", p.MinQuantum, p.MaxQuantum)
	}
	v.duration("pacing.late_tolerance", p.LateTolerance, time.Millisecond, time.Second)
	v.duration("pacing.max_open_age", p.MaxOpenAge, 100*time.Millisecond, time.Hour)
	between(v, "pacing.max_buffer_bytes", p.MaxBufferBytes, 1<<20, 1<<40)
	between(v, "pacing.items_per_second", p.ItemsPerSecond, 100, 10_000_000)
}

func (v *validator) retry(r *RetryConfig) {
	between(v, "retry.max_attempts", r.MaxAttempts, 1, 1000)
	v.duration("retry.initial", r.Initial, 10*time.Millisecond, 24*time.Hour)
	v.duration("retry.max", r.Max, 10*time.Millisecond, 7*24*time.Hour)
	if r.Initial > r.Max {
		v.add("retry.initial", "%s is above retry.max, %s; lower it", r.Initial, r.Max)
	}
	between(v, "retry.jitter", r.Jitter, 0, 1)
}

func (v *validator) dedupe(d *DedupeConfig) {
	if d.TTL != 0 && (d.TTL < time.Second || d.TTL > maxDedupe) {
		v.add("dedupe.ttl", "%s is out of range; use a duration between 1s and %s, or 0 for no deduplication", d.TTL, maxDedupe)
	}
	v.oneOf("dedupe.on_store_failure", d.OnStoreFailure, delivery.PolicyClosed, delivery.PolicyOpen)
}

const maxDedupe = 30 * 24 * time.Hour

func (v *validator) sinks(c *Config) {
	names := slices.Sorted(maps.Keys(c.Sinks))
	for _, name := range names {
		for _, problem := range sink.Problems(c.Sinks[name]) {
			v.problems = append(v.problems, "sinks."+name+"."+problem)
		}
	}
	if _, ok := c.Sinks[c.DefaultSink]; ok || c.DefaultSink == "" {
		return
	}
	switch near := nearest(c.DefaultSink, names); {
	case near != "":
		v.add("default_sink", "there is no sink %s; did you mean %s?", quoted(c.DefaultSink), near)
	case len(names) == 0:
		v.add("default_sink", "there is no sink %s; add it under sinks", quoted(c.DefaultSink))
	default:
		v.add("default_sink", "there is no sink %s; use one of %s", quoted(c.DefaultSink), strings.Join(names, ", "))
	}
}
