package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/console"
)

// askOf runs `check --ready` against something that listens there.
func askOf(t *testing.T, listen string) (said string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // must not matter on the way to this machine
	var out bytes.Buffer
	err = (&cli{World: World{Environ: []string{"PACER_HTTP_LISTEN=" + listen}, Stdout: &out, Stderr: &out}}).checkReady(t.Context())
	return out.String(), err
}

func TestCheckReadySaysWhatTheDaemonSays(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
		err    error
	}{
		{http.StatusOK, "ok\n", "ok    daemon\n", nil},
		{http.StatusServiceUnavailable, "redis has not\nanswered yet\n", "FAIL  daemon: redis has not answered yet\n", ErrNotOK},
		{http.StatusNotFound, "404 page not found", "which is not what pacer run says", ErrNotOK},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body)) // the test fails if it did not arrive
		}))
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, listen := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port} {
			said, err := askOf(t, listen)
			if !errors.Is(err, c.err) || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
				t.Errorf("%s answers %d: said %q, error %v", listen, c.status, said, err)
			}
		}
		server.Close()
	}
}

func TestCheckReadyWithoutADaemon(t *testing.T) {
	said, err := askOf(t, "127.0.0.1:1")
	if !errors.Is(err, ErrNotOK) || !strings.Contains(said, "no answer from 127.0.0.1:1") || strings.Count(said, "\n") != 1 {
		t.Errorf("said %q, error %v", said, err)
	}
	if code, said, _ := execute(t, []string{"PACER_HTTP_METRICS_LISTEN=127.0.0.1:2"}, "check", "--ready"); code != 1 || !strings.Contains(said, "no answer from 127.0.0.1:2") {
		t.Errorf("where metrics have an address of their own: code %d, said %q", code, said)
	}
	if said, err = askOf(t, "off"); ExitCode(err) != 2 || said != "" {
		t.Errorf("off: said %q, error %v", said, err)
	}
}

func TestDialable(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:1": "127.0.0.1:1", "[::]:2": "[::1]:2", "10.0.0.7:3": "10.0.0.7:3", "localhost:4": "localhost:4",
	} {
		if got := console.Dialable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}

// TestCheckAsJSON: the same checks as in text, and what failed.
func TestCheckAsJSON(t *testing.T) {
	environ := []string{
		"PACER_KAFKA_BROKERS=127.0.0.1:1", "PACER_REDIS_ADDRS=127.0.0.1:1", "PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer",
		"PACER_SINKS_SLOW_TYPE=http", "PACER_SINKS_SLOW_URL=http://127.0.0.1:1/", "PACER_SINKS_SLOW_TIMEOUT=10s",
	}
	code, out, errs := execute(t, environ, "check", "--json")
	var report checkReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || report.OK || errs != "" {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	code, text, _ := execute(t, environ, "check")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if code != 1 || len(lines) != len(report.Checks) {
		t.Errorf("code %d, %d lines: %s; %d checks", code, len(lines), text, len(report.Checks))
	}
	results := map[string]string{}
	for _, r := range report.Checks {
		results[r.Check] = r.Result
	}
	for check, want := range map[string]string{
		"configuration": "ok", "dedupe": "ok", "postgres": "failed", "redis": "failed", "kafka": "failed", "sink slow": "failed",
		"sinks.slow.timeout": "note",
	} {
		if results[check] != want {
			t.Errorf("%s: %q, want %q", check, results[check], want)
		}
	}
}
