package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/testservices/certs"
)

// secretFiles is a configuration whose secrets and certificates are files.
type secretFiles struct {
	t   *testing.T
	dir string
	ca  *certs.Authority
}

func newSecretFiles(t *testing.T) *secretFiles {
	t.Helper()
	ca, err := certs.New()
	if err != nil {
		t.Fatal(err)
	}
	f := &secretFiles{t: t, dir: t.TempDir(), ca: ca}
	f.write("ca.pem", string(ca.PEM))
	f.write("kafka", "kafka-1\n")
	f.write("redis", "redis-1\n")
	f.write("dsn", "postgres://u:postgres-1@127.0.0.1/pacer\n")
	f.issue(time.Hour)
	return f
}

func (f *secretFiles) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *secretFiles) read(name string) string {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(content)
}

// issue replaces pacer's own certificate.
func (f *secretFiles) issue(lifetime time.Duration) {
	f.t.Helper()
	cert, key, err := f.ca.Issue("pacer", time.Now().Add(lifetime))
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("own.crt", string(cert))
	f.write("own.key", string(key))
}

func (f *secretFiles) services(log *slog.Logger, environ ...string) *Services {
	f.t.Helper()
	cfg, _, err := config.LoadFor(config.Source{Path: filepath.Join(f.dir, "none.yaml"), Environ: append(environ,
		"PACER_KAFKA_TLS=true", "PACER_KAFKA_TLS_CA_FILE="+f.dir+"/ca.pem",
		"PACER_KAFKA_TLS_CERT_FILE="+f.dir+"/own.crt", "PACER_KAFKA_TLS_KEY_FILE="+f.dir+"/own.key",
		"PACER_KAFKA_SASL_MECHANISM=plain", "PACER_KAFKA_SASL_USERNAME=u", "PACER_KAFKA_SASL_PASSWORD=file:"+f.dir+"/kafka",
		"PACER_REDIS_PASSWORD=file:"+f.dir+"/redis", "PACER_POSTGRES_DSN=file:"+f.dir+"/dsn",
	)})
	if err != nil {
		f.t.Fatal(err)
	}
	s := NewServices(cfg, log)
	if _, err := s.access(); err != nil {
		f.t.Fatal(err)
	}
	return s
}

func TestCertificatesAndSecretsAreReadAgain(t *testing.T) {
	f := newSecretFiles(t)
	s := f.services(slog.New(slog.DiscardHandler))
	if changed, err := s.renewAccess(); err != nil || len(changed) > 0 {
		t.Fatalf("nothing has changed: %q, %v", changed, err)
	}
	expiry := s.keeper.expiry.WithLabelValues("kafka", "client")
	first := testutil.ToFloat64(expiry)

	f.write("kafka", "kafka-2\n")
	f.write("redis", "redis-2\n")
	f.write("dsn", "postgres://u:postgres-2@127.0.0.1/pacer\n")
	f.issue(2 * time.Hour)
	changed, err := s.renewAccess()
	if want := []string{"kafka.tls", "kafka.sasl.password", "redis.password", "postgres.dsn"}; err != nil || !slices.Equal(changed, want) {
		t.Fatalf("changed %q, %v, want %q", changed, err, want)
	}
	if got := s.kafkaAccess().SASL.Password + s.redisAccess().Password + s.dsn(); got != "kafka-2redis-2postgres://u:postgres-2@127.0.0.1/pacer" {
		t.Errorf("new connections use %s", got)
	}
	if now := testutil.ToFloat64(expiry); now < first+3000 {
		t.Errorf("the certificate expires at %.0f, the one before at %.0f", now, first)
	}
}

// TestTokensAreTakenAway: by an empty list as well, and while another file cannot be used.
func TestTokensAreTakenAway(t *testing.T) {
	f := newSecretFiles(t)
	alice, bob := "alice admin "+strings.Repeat("a", 64)+"\n", "bob viewer "+strings.Repeat("b", 64)+"\n"
	f.write("tokens", alice+bob)
	s := f.services(slog.New(slog.DiscardHandler), "PACER_HTTP_TOKENS=file:"+f.dir+"/tokens")
	for _, tt := range []struct {
		redis, tokens string
		fails         bool
		changed       []string
		want          string
	}{
		{"redis-1", bob, false, []string{"http.tokens"}, bob}, {"redis-1", "", false, []string{"http.tokens"}, ""},
		{"redis-1", alice, false, []string{"http.tokens"}, alice},
		{"redis-1", "carol admin", true, nil, alice}, {"", "carol admin", true, nil, alice},
		{"", bob, true, []string{"http.tokens"}, bob}, {"", "", true, []string{"http.tokens"}, ""}, {"", "", true, nil, ""},
	} {
		f.write("redis", tt.redis)
		f.write("tokens", tt.tokens)
		changed, err := s.renewAccess()
		if got := s.latest().HTTP.Tokens.Reveal(); (err != nil) != tt.fails || !slices.Equal(changed, tt.changed) || got != strings.TrimSpace(tt.want) {
			t.Errorf("redis %q, tokens %q: changed %q, %v; in use is %q", tt.redis, tt.tokens, changed, err, got)
		}
	}
	f.write("redis", "redis-5")
	f.write("tokens", "carol admin")
	if changed, err := s.renewAccess(); err == nil || !strings.HasPrefix(err.Error(), "http.tokens: line 1 must be a name") || !slices.Equal(changed, []string{"redis.password"}) {
		t.Errorf("a wrong line beside a new password: %q, %v", changed, err)
	}
	if password := s.redisAccess().Password; password != "redis-5" {
		t.Errorf("redis has the password %q", password)
	}
	f.write("redis", "redis-1")
	f.write("tokens", "")
	if f.services(slog.New(slog.DiscardHandler), "PACER_HTTP_TOKENS=file:"+f.dir+"/tokens").latest().HTTP.Tokens != "" {
		t.Error("a start with an empty list has tokens")
	}
}

// TestFilesAreReadOnHangupAndBySchedule: a hangup is answered at once, also when there is nothing new; a change is
// noticed within ten seconds without one, and a file that cannot be used is an error once.
func TestFilesAreReadOnHangupAndBySchedule(t *testing.T) {
	f := newSecretFiles(t)
	synctest.Test(t, func(t *testing.T) {
		log := &shared{}
		s := f.services(log.Logger())
		hangup := make(chan os.Signal, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sinkChanges, sinkReads := false, 0
		go s.followAccess(ctx, hangup, func() bool { sinkReads++; return sinkChanges })
		hangup <- os.Interrupt
		synctest.Wait()
		log.has(t, "none has changed", 1)
		sinkChanges = true // and says so itself
		hangup <- os.Interrupt
		synctest.Wait()
		log.has(t, "none has changed", 1)
		if sinkReads != 2 {
			t.Errorf("sinks were read again %d times", sinkReads)
		}
		f.write("redis", "redis-3")
		hangup <- os.Interrupt
		synctest.Wait()
		log.has(t, "changed=[redis.password]", 1)
		f.write("redis", "redis-4")
		time.Sleep(accessEvery + time.Second)
		log.has(t, "changed=[redis.password]", 2)
		f.write("redis", "")
		time.Sleep(time.Minute)
		log.has(t, "level=ERROR", 1)
		f.write("kafka", "") // while the first one cannot be read
		time.Sleep(time.Minute)
		log.has(t, "level=ERROR", 2)
		f.write("kafka", "kafka-1")
		time.Sleep(time.Minute)
		f.write("kafka", "")
		time.Sleep(time.Minute)
		log.has(t, "kafka.sasl.password: ", 2)
		if s.redisAccess().Password != "redis-4" {
			t.Error("an empty secret is in use")
		}
		log.has(t, "redis-", 0)
	})
}

// TestABrokenFileConcernsItsServiceAlone: all other changes are in use. A setting that the start refuses, such as a weak token, is refused later
// too.
func TestABrokenFileConcernsItsServiceAlone(t *testing.T) {
	f := newSecretFiles(t)
	f.write("admin", "sixteen-letters-")
	s := f.services(slog.New(slog.DiscardHandler), "PACER_ADMIN_TOKEN=file:"+f.dir+"/admin")
	before := s.kafkaAccess().TLS
	for i, tt := range []struct{ file, content, says string }{
		{"ca.pem", "", "kafka.tls.ca_file: "}, {"own.key", "", "kafka.tls.cert_file: "}, {"kafka", "", "kafka.sasl.password: "},
		{"dsn", "nonsense=1 =", "postgres.dsn: "}, {"admin", "s", "admin_token: 1 characters can be guessed"},
	} {
		whole := f.read(tt.file)
		f.write(tt.file, tt.content)
		password := "redis-" + strconv.Itoa(10+i)
		f.write("redis", password)
		changed, err := s.renewAccess()
		if err == nil || !strings.HasPrefix(err.Error(), tt.says) || !slices.Equal(changed, []string{"redis.password"}) || s.redisAccess().Password != password {
			t.Errorf("%s is broken: changed %q, %v; redis has the password %q", tt.file, changed, err, s.redisAccess().Password)
		}
		now, used := s.kafkaAccess(), s.latest().AdminToken.Reveal()
		if !sameTLS(now.TLS, before) || now.SASL.Password != "kafka-1" || used != "sixteen-letters-" ||
			s.dsn() != "postgres://u:postgres-1@127.0.0.1/pacer" {
			t.Errorf("%s is broken: it is not as it was", tt.file)
		}
		f.write(tt.file, whole)
	}
	if changed, err := s.renewAccess(); err != nil || len(changed) > 0 {
		t.Errorf("all are whole: changed %q, %v", changed, err)
	}
	f.write("admin", "seventeen-letters")
	if changed, err := s.renewAccess(); err != nil || !slices.Equal(changed, []string{"admin_token"}) {
		t.Errorf("another token: changed %q, %v", changed, err)
	}
}

// TestFilesThatNobodyNeedsAreSaidByWhoeverNeedsThem: of a console without dead letters, which does not connect to Kafka, they take nothing
// away, and the reason is kept.
func TestFilesThatNobodyNeedsAreSaidByWhoeverNeedsThem(t *testing.T) {
	f := newSecretFiles(t)
	whole := f.read("ca.pem")
	f.write("ca.pem", "")
	f.write("tokens", "")
	s := f.services(slog.New(slog.DiscardHandler), "PACER_HTTP_TOKENS=file:"+f.dir+"/tokens", "PACER_KAFKA_BROKERS=127.0.0.1:1")
	f.write("tokens", "alice admin "+strings.Repeat("a", 64))
	f.write("dsn", "postgres://u:postgres-2@127.0.0.1/pacer")
	changed, err := s.renewAccess()
	if err != nil || !slices.Equal(changed, []string{"postgres.dsn", "http.tokens"}) {
		t.Errorf("changed %q, %v", changed, err)
	}
	if err := s.OpenKafka(); err == nil || !strings.HasPrefix(err.Error(), "kafka.tls.ca_file: ") {
		t.Errorf("kafka is opened: %v", err)
	}
	f.write("ca.pem", whole)
	if changed, err := s.renewAccess(); err != nil || !slices.Equal(changed, []string{"kafka.tls"}) {
		t.Errorf("mended: changed %q, %v", changed, err)
	}
	if err := s.OpenKafka(); err != nil {
		t.Errorf("mended: %v", err)
	}
	s.Close()
}
