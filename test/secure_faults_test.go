package test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/testservices/certs"
)

// misconfiguration is a daemon's configuration with one thing wrong.
type misconfiguration struct {
	set   []string // variables; one that begins with "-" is a part of the file that is left out
	check string   // in the one line of check that fails
	run   string   // in a line of the daemon, which waits; "": it has no trouble to begin with
	exits bool     // both end with code 2 and the line of check
}

// misconfigurations: each is told in one clear line that names the setting, by check and by the daemon.
func (s *secured) misconfigurations(t *testing.T) {
	st := s.stack(t)
	ctx := context.Background()
	daemon := s.rights.kafka[forDaemons]
	s.kafkaUser("nowrite", without(daemon, kafka.ResourceTypeTopic, "pacer.", kafka.ACLOperationTypeWrite))
	s.kafkaUser("nogroup", without(daemon, kafka.ResourceTypeGroup, "pacer", kafka.ACLOperationTypeRead))
	s.redisUser("nohash", append(slices.Clone(s.rights.redis), "-hset"))
	s.redisUser("elsewhere", append(slices.Clone(s.rights.redis), "resetkeys", "~{other.*"))
	_, err := s.db.Exec(ctx, fmt.Sprintf(`CREATE ROLE pacer_reader LOGIN PASSWORD '%s'; GRANT USAGE ON SCHEMA pacer TO pacer_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO pacer_reader`, s.password))
	s.check(err)
	stranger, expired, ca := s.strangers(t)
	dsnWith := func(host, ca, mode string) string {
		dsn, err := url.Parse(s.as("pacer_daemon"))
		s.check(err)
		if host != "" {
			dsn.Host = host
		}
		dsn.RawQuery = url.Values{"sslmode": {mode}, "sslrootcert": {ca}}.Encode()
		return "PACER_POSTGRES_DSN=" + dsn.String()
	}
	const unknown, old = "certificate signed by unknown authority", "certificate has expired"
	for name, m := range map[string]misconfiguration{
		"kafka, another authority": {[]string{"PACER_KAFKA_TLS_CA_FILE=" + stranger}, "kafka: kafka.brokers: |" + unknown + "|look at kafka.tls", unknown + "; look at kafka.tls", false},
		"redis, another authority": {[]string{"PACER_REDIS_TLS_CA_FILE=" + stranger}, "redis: redis.addrs: |" + unknown + "|look at redis.tls", unknown + "; look at redis.tls", false},
		"postgres, another authority": {[]string{dsnWith("", stranger, "verify-full")},
			"postgres: postgres.dsn: |" + unknown, "postgres.dsn: cannot connect to ", false},
		"kafka, an expired certificate": {[]string{"PACER_KAFKA_BROKERS=" + expired, "PACER_KAFKA_TLS_CA_FILE=" + ca},
			"kafka: kafka.brokers: |" + old + "|look at kafka.tls", old, false},
		"redis, an expired certificate": {[]string{"PACER_REDIS_ADDRS=" + expired, "PACER_REDIS_TLS_CA_FILE=" + ca},
			"redis: redis.addrs: |" + old + "|look at redis.tls", old, false},
		"postgres, an expired certificate": {[]string{dsnWith(expired, ca, "verify-full")}, "postgres: postgres.dsn: |" + old, old, false},
		"kafka, another password": {[]string{"PACER_KAFKA_SASL_PASSWORD=wrong"},
			"kafka: kafka.brokers: |correct kafka.sasl.username or kafka.sasl.password", "kafka.sasl.password", false},
		"kafka, another mechanism": {[]string{"PACER_KAFKA_SASL_MECHANISM=scram-sha-256"}, "kafka: kafka.brokers: |correct kafka.sasl.mechanism", "kafka.sasl.mechanism", false},
		"redis, another password":  {[]string{"PACER_REDIS_PASSWORD=wrong"}, "redis: redis.addrs: |correct redis.username and redis.password", "redis.password", false},
		"postgres, another password": {[]string{strings.Replace(dsnWith("", s.ca, "verify-full"), s.password, "wrong", 1)},
			"postgres: postgres.dsn: |password authentication failed", "password authentication failed", false},
		"kafka without TLS":    {[]string{"-  tls: {enabled: true, ca_file: " + s.ca + "}\n"}, "kafka: kafka.brokers: |expects TLS; set kafka.tls", "set kafka.tls", false},
		"redis without TLS":    {[]string{"-, tls: {enabled: true, ca_file: " + s.ca + "}"}, "redis: redis.addrs: |does it expect TLS? set redis.tls", "set redis.tls", false},
		"postgres without TLS": {[]string{dsnWith("", s.ca, "disable")}, "postgres: postgres.dsn: |no encryption", "no encryption", false},
		"kafka, no file":       {[]string{"PACER_KAFKA_TLS_CA_FILE=/nowhere.pem"}, "kafka.tls.ca_file: |/nowhere.pem", "", true},
		"kafka, a right on topics": {[]string{"PACER_KAFKA_SASL_USERNAME=nowrite"},
			"kafka: the user of kafka.sasl lacks Write on pacer.dead, |pacer.lanes|add these ACLs", "", false},
		"kafka, a right on the group": {[]string{"PACER_KAFKA_SASL_USERNAME=nogroup"},
			"kafka: the user of kafka.sasl lacks Read on group pacer", "the user of kafka.sasl lacks a right", false},
		"redis, a right on a command": {[]string{"PACER_REDIS_USERNAME=nohash"}, "redis: the user of redis.username may not |hset", "the user of redis.username lacks a right", false},
		"redis, a right on keys":      {[]string{"PACER_REDIS_USERNAME=elsewhere"}, "redis: the user of redis.username may not |key", "the user of redis.username lacks a right", false},
		"postgres, rights on tables": {[]string{"PACER_POSTGRES_DSN=" + s.as("pacer_reader")},
			"postgres: the user of postgres.dsn lacks rights of a daemon: GRANT INSERT ON pacer.campaign_history, |TO pacer_reader", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := *st
			st.t = t
			m.set = st.leaveOut(m.set)
			st.checkSays(m, s.password)
			if m.exits || m.run != "" {
				st.daemonSays(m)
			}
		})
	}
}

// leaveOut makes a configuration of its own without what is to be left out, and returns the variables.
func (s *stack) leaveOut(set []string) (variables []string) {
	s.t.Helper()
	text := readFile(s.t, s.config())
	file := text
	for _, v := range set {
		if part, ok := strings.CutPrefix(v, "-"); ok {
			file = strings.Replace(file, part, "", 1)
		} else {
			variables = append(variables, v)
		}
	}
	s.dir = s.t.TempDir()
	noError(s.t, os.WriteFile(s.config(), []byte(file), 0o600))
	return variables
}

// checkSays runs check, whose one failure has to be the expected one.
func (s *stack) checkSays(m misconfiguration, secret string) {
	s.t.Helper()
	out, err := s.runAs(m.set, "check")
	var failed []string
	for line := range strings.Lines(out) {
		if after, ok := strings.CutPrefix(line, "FAIL  "); ok || m.exits {
			failed = append(failed, after)
		}
	}
	code := 1
	if m.exits {
		code = 2
	}
	if exitCode(err) != code || len(failed) != 1 || strings.Contains(out, secret) {
		s.t.Fatalf("check: %v\n%s", err, out)
	}
	for part := range strings.SplitSeq(m.check, "|") {
		if !strings.Contains(failed[0], part) {
			s.t.Errorf("check says %q, without %q", failed[0], part)
		}
	}
}

// daemonSays runs a daemon, which says what is wrong, waits, and ends gracefully.
func (s *stack) daemonSays(m misconfiguration) {
	s.t.Helper()
	log := &logFile{}
	cmd := exec.Command(s.binary, "run", "--config", s.config())
	cmd.Env = append(append(environment(), "PACER_HTTP_LISTEN=off"), m.set...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	noError(s.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if m.exits {
		if err := <-ended; exitCode(err) != 2 || strings.Count(log.String(), "\n") != 1 {
			s.t.Errorf("run: %v\n%s", err, log.String())
		}
		return
	}
	deadline := time.Now().Add(time.Minute)
	for log.lines("level=WARN", m.run) == 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil || log.lines("level=WARN", m.run) == 0 {
		s.t.Errorf("run: %v; no line of it says %q:\n%s", err, m.run, log.tail(40))
	}
}

// strangers returns the file of an unknown authority's certificate, the address of a server with an expired certificate, and the file of
// that server's authority. The server takes connections as Kafka, Redis and PostgreSQL do.
func (s *secured) strangers(t *testing.T) (stranger, expired, ca string) {
	t.Helper()
	other, err := certs.New()
	s.check(err)
	cert, key, err := other.Issue("expired", time.Now().Add(-time.Minute))
	s.check(err)
	pair, err := tls.X509KeyPair(cert, key)
	s.check(err)
	unknown, err := certs.New()
	s.check(err)
	dir := t.TempDir()
	s.check(certs.Write(dir, map[string][]byte{"stranger.pem": unknown.PEM, "ca.pem": other.PEM}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.check(err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go shake(conn, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		}
	}()
	return filepath.Join(dir, "stranger.pem"), listener.Addr().String(), filepath.Join(dir, "ca.pem")
}

// shake shakes hands with a client. One of PostgreSQL asks in plain text first whether there is TLS.
func shake(conn net.Conn, encryption *tls.Config) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	head := make([]byte, 1)
	if _, err := io.ReadFull(conn, head); err != nil {
		return
	}
	first := io.Reader(strings.NewReader(string(head)))
	if head[0] == 0 { // the length of the request; a handshake begins with 22
		if _, err := io.ReadFull(conn, make([]byte, 7)); err != nil {
			return
		}
		_, _ = conn.Write([]byte("S"))
		first = strings.NewReader("")
	}
	_ = tls.Server(&resumed{conn, io.MultiReader(first, conn)}, encryption).Handshake()
}

// resumed is a connection whose first bytes were read already.
type resumed struct {
	net.Conn
	rest io.Reader
}

func (r *resumed) Read(p []byte) (int, error) { return r.rest.Read(p) }
