package command

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/console"
)

func TestCheckReadySaysWhatTheDaemonSays(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // must not matter on the way to this machine
	answer := http.HandlerFunc(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		answer(w, r)
	}))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for _, tt := range []struct {
		status, code int
		body, says   string
	}{
		{200, 0, "ok\n", "ok    daemon\n"},
		{503, 1, "redis has not\nanswered yet\n", "FAIL  daemon: redis has not answered yet\n"},
		{404, 1, "404 page not found", "which is not what pacer run says"},
	} {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body)) // the test fails if it did not arrive
		}
		for _, host := range []string{"127.0.0.1", "0.0.0.0", ""} {
			checkReady(t, "PACER_HTTP_LISTEN="+host+port, tt.code, tt.says)
		}
	}
	checkReady(t, "PACER_HTTP_LISTEN=127.0.0.1:1", 1, "no answer from 127.0.0.1:1")
	checkReady(t, "PACER_HTTP_METRICS_LISTEN=127.0.0.1:2", 1, "no answer from 127.0.0.1:2")
	checkReady(t, "PACER_HTTP_LISTEN=off", 2, "")
}

// checkReady runs `check --ready`, which says one line about the daemon, or why it cannot ask it.
func checkReady(t *testing.T, environ string, want int, says string) {
	t.Helper()
	code, out, errs := execute(t, []string{environ}, "check", "--ready")
	if code != want || strings.Count(out+errs, "\n") != 1 || (errs != "") != (want == 2) || !strings.Contains(out, says) {
		t.Errorf("%s: code %d, says %q, %q", environ, code, out, errs)
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
	d := &desk{t: t, environ: append(nowhere, "PACER_SINKS_SLOW_TYPE=http", "PACER_SINKS_SLOW_URL=http://127.0.0.1:1/", "PACER_SINKS_SLOW_TIMEOUT=10s")}
	t.Chdir(t.TempDir())
	report, code, errs := reads[checkReport](d, "check")
	if code != 1 || report.OK || errs != "" {
		t.Fatalf("code %d, %+v: %s", code, report, errs)
	}
	code, text, _ := d.types("check")
	if lines := strings.Count(text, "\n"); code != 1 || lines != len(report.Checks) {
		t.Errorf("code %d, %d lines: %s; %d checks", code, lines, text, len(report.Checks))
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
