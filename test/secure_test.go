package test

import (
	"cmp"
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// secureIngress does not begin with the prefix of pacer's own topics, so that it has rights of its own.
const secureIngress = "jobs"

// secured is a private stack of services that speak TLS only and let in only users with a password.
type secured struct {
	t        *testing.T
	rights   documented
	brokers  string
	redis    string
	dsn      *url.URL // of the user who may do everything
	ca       string   // file
	password string   // of every user
	tls      *tls.Config
	admin    *kafka.Client
	store    *redis.Client
	db       *pgx.Conn
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	_, env := startServices(t, "PACER_SECURE=yes")
	s := &secured{t: t, rights: readDocumented(t)}
	var err error
	s.brokers, s.redis, s.ca = env["PACER_KAFKA_BROKERS"], env["PACER_REDIS_ADDRS"], env["PACER_KAFKA_TLS_CA_FILE"]
	s.dsn, err = url.Parse(env["PACER_POSTGRES_DSN"])
	s.check(err)
	s.password, _ = s.dsn.User.Password()
	authority, err := os.ReadFile(s.ca)
	s.check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	s.tls = &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	s.connect()
	s.grant()
	return s
}

// check ends the test with an error.
func (s *secured) check(err error) {
	s.t.Helper()
	noError(s.t, err)
}

// connect opens connections as the user who may do everything.
func (s *secured) connect() {
	s.t.Helper()
	login, err := scram.Mechanism(scram.SHA512, "admin", s.password)
	s.check(err)
	transport := &kafka.Transport{TLS: s.tls, SASL: login}
	s.t.Cleanup(transport.CloseIdleConnections)
	s.admin = &kafka.Client{Addr: kafka.TCP(s.brokers), Transport: transport, Timeout: 10 * time.Second}
	s.store = redis.NewClient(&redis.Options{Addr: s.redis, Username: "admin", Password: s.password, TLSConfig: s.tls})
	s.t.Cleanup(func() { _ = s.store.Close() })
	s.db = s.connected(s.dsn.String())
}

func (s *secured) connected(dsn string) *pgx.Conn {
	s.t.Helper()
	db, err := pgx.Connect(context.Background(), dsn)
	s.check(err)
	s.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// grant makes the users with the documented rights.
func (s *secured) grant() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for { // the broker takes connections a moment before it serves
		answer, err := s.admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{
			Topics: []kafka.TopicConfig{{Topic: secureIngress, NumPartitions: 2, ReplicationFactor: 1}},
		})
		if err == nil {
			err = answer.Errors[secureIngress]
		}
		if err == nil || errors.Is(err, kafka.TopicAlreadyExists) {
			break
		}
		if ctx.Err() != nil {
			s.t.Fatalf("the secure broker does not serve: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.kafkaUser("daemon", s.rights.kafka[forDaemons])
	s.kafkaUser("migrate", s.rights.kafka[forMigrate])
	s.kafkaUser("people", s.rights.kafka[forPeople])
	s.redisUser("pacer", s.rights.redis)
	_, err := s.db.Exec(ctx, s.rights.roles)
	s.check(err)
	for _, role := range []string{"pacer_owner", "pacer_daemon", "pacer_ops"} {
		_, err = s.db.Exec(ctx, fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", role, s.password))
		s.check(err)
	}
}

// kafkaUser makes a user of Kafka with these rights and no others.
func (s *secured) kafkaUser(name string, rights []kafka.ACLEntry) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const iterations = 4096
	salt := []byte("a salt for " + name)
	salted, err := pbkdf2.Key(sha512.New, s.password, salt, iterations, sha512.Size)
	s.check(err)
	s.admin.Transport.(*kafka.Transport).CloseIdleConnections() // their sessions have ended
	made, err := s.admin.AlterUserScramCredentials(ctx, &kafka.AlterUserScramCredentialsRequest{
		Upsertions: []kafka.UserScramCredentialsUpsertion{{
			Name: name, Mechanism: kafka.ScramMechanismSha512, Iterations: iterations, Salt: salt, SaltedPassword: salted,
		}},
	})
	s.check(err)
	for _, r := range made.Results {
		s.check(r.Error)
	}
	acls := make([]kafka.ACLEntry, len(rights))
	for i, r := range rights {
		r.Principal = "User:" + name
		acls[i] = r
	}
	answer, err := s.admin.CreateACLs(ctx, &kafka.CreateACLsRequest{ACLs: acls})
	s.check(err)
	s.check(errors.Join(answer.Errors...))
}

// redisUser makes a user of Redis with these rights and no others.
func (s *secured) redisUser(name string, rights []string) {
	s.t.Helper()
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">" + s.password}
	for _, r := range rights {
		args = append(args, r)
	}
	s.check(s.store.Do(context.Background(), args...).Err())
}

// as is the DSN of a role.
func (s *secured) as(role string) string {
	dsn := *s.dsn
	dsn.User = url.UserPassword(role, s.password)
	return dsn.String()
}

// stack is a stack whose daemons have the documented rights. Its config is theirs.
func (s *secured) stack(t *testing.T) *stack {
	t.Helper()
	st := &stack{t: t, dir: t.TempDir(), binary: program(t), receiver: newReceiver(t)}
	for name, secret := range map[string]string{"password": s.password, "dsn": s.as("pacer_daemon")} {
		s.check(os.WriteFile(filepath.Join(st.dir, name), []byte(secret), 0o600))
	}
	s.check(os.WriteFile(st.config(), fmt.Appendf(nil, `
kafka:
  brokers: ["%[1]s"]
  topics: [%[2]s]
  lanes: 4
  results: true
  tls: {enabled: true, ca_file: %[3]s}
  sasl: {mechanism: scram-sha-512, username: daemon, password: "file:%[4]s/password"}
redis: {addrs: ["%[5]s"], tls: {enabled: true, ca_file: %[3]s}, username: pacer, password: "file:%[4]s/password"}
postgres: {dsn: "file:%[4]s/dsn"}
dedupe: {ttl: 1h}
sinks: {receiver: {type: http, url: "%[6]s"}}
`, s.brokers, secureIngress, s.ca, st.dir, s.redis, st.receiver.url), 0o600))
	return st
}

// TestSecure runs on a stack of its own, since its users and their rights are those of a whole cluster.
func TestSecure(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	t.Run("documented rights suffice", s.documentedRightsSuffice)
	if !t.Failed() { // the schema and the topics are there
		s.misconfigurations(t)
	}
}

// sessionsEnd sends jobs while the sessions of all connections to Kafka end, several times.
func (s *stack) sessionsEnd(do func(as []string, line string) string, people []string) {
	s.t.Helper()
	// On a quiet machine no gap exceeds 300 ms; a session that ends unrenewed makes one of a second or more.
	const jobs, bound = 1500, 600 * time.Millisecond
	do(people, "campaign create sessions --rate 100")
	do(people, fmt.Sprint("publish --campaign sessions --count ", jobs))
	s.arrive(time.Minute, "sessions", jobs)
	sent, blur := s.receiver.arrivals("sessions"), s.receiver.blur() // stalls of the machine are subtracted
	for i := range len(sent) - 1 {
		if gap := time.Duration(sent[i+1].at-sent[i].at-blur(sent[i+1].at)) * time.Microsecond; gap > bound {
			s.t.Errorf("no job was sent for %v while sessions ended", gap)
		}
	}
}

// documentedRightsSuffice runs all of pacer as the documented users.
func (s *secured) documentedRightsSuffice(t *testing.T) {
	st := s.stack(t)
	owner := []string{"PACER_POSTGRES_DSN=" + s.as("pacer_owner"), "PACER_KAFKA_SASL_USERNAME=migrate"}
	people := []string{"PACER_POSTGRES_DSN=" + s.as("pacer_ops"), "PACER_KAFKA_SASL_USERNAME=people"}
	do := func(as []string, line string) string {
		t.Helper()
		out, err := st.runAs(as, strings.Fields(line)...)
		if err != nil {
			t.Fatalf("pacer %s: %v\n%s", line, err, out)
		}
		return out
	}
	do(owner, "migrate up")
	if _, err := s.connected(s.as("pacer_owner")).Exec(context.Background(), s.rights.grant); err != nil {
		t.Fatalf("the documented grants: %v", err)
	}
	for _, line := range []string{"migrate up", "migrate status"} {
		do(owner, line)
	}
	if out := do(nil, "check"); strings.Contains(out, "note") {
		t.Errorf("check as a daemon printed\n%s", out)
	}
	for _, line := range []string{
		"quota set provider --window 1000/1m,100000/1d", "quota set soft --window 1000/1m --mode eventual",
		"campaign create spring --rate 1000 --quota provider", "campaign create soft --rate 1000 --quota soft",
		"campaign create lane --rate 1000 --status paused", "campaign create refused --rate 1000",
		"publish --campaign spring --count 40", "publish --campaign soft --count 10", "publish --campaign lane --count 10",
		"publish --campaign refused --count 3",
	} {
		do(people, line)
	}
	st.receiver.fails(http.StatusGone, func(a arrival) bool { return a.campaign == "refused" })
	d := st.started("one")
	accepted := func(campaign string, want int) {
		t.Helper()
		st.await(30*time.Second, fmt.Sprintf("%d jobs of %s", want, campaign), func() bool {
			n, _ := st.receiver.accepted(campaign)
			return n == want
		})
	}
	accepted("spring", 40)
	accepted("soft", 10)
	do(people, "publish --campaign spring --count 5 --direct")
	accepted("spring", 45)
	do(people, "campaign resume lane")
	accepted("lane", 10)
	st.await(30*time.Second, "the dead letters", func() bool { return strings.Count(do(people, "dead list --campaign refused"), "refused") >= 3 })
	st.receiver.answers(nil)
	do(people, "dead replay --campaign refused")
	accepted("refused", 3)
	for _, line := range []string{"explain spring", "campaign show spring", "campaign list", "quota show provider", "quota usage provider"} {
		do(people, line)
	}
	d.body("/metrics")
	st.sessionsEnd(do, people)
	d.stop()
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the daemon logs %s", cmp.Or(line, "nothing"))
		}
	}
	s.admin.Transport.(*kafka.Transport).CloseIdleConnections() // their sessions have ended
	results, err := s.admin.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{"pacer.results": {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1), kafka.LastOffsetOf(2)}},
	})
	noError(t, err)
	written := int64(0)
	for _, p := range results.Topics["pacer.results"] {
		written += p.LastOffset
	}
	if written == 0 {
		t.Error("no results were written")
	}
}
