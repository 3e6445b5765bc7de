package app

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// askOf runs `check --ready` against something that listens there.
func askOf(t *testing.T, listen string) (said string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // must not matter on the way to this machine
	var out bytes.Buffer
	err = CheckReady(t.Context(), Invocation{
		Environ: []string{"PACER_HTTP_LISTEN=" + listen}, Stdout: &out, Stderr: &out,
	})
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
	if said, err = askOf(t, "off"); ExitCode(err) != 2 || said != "" {
		t.Errorf("off: said %q, error %v", said, err)
	}
}

func TestDialable(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:1": "127.0.0.1:1", "[::]:2": "[::1]:2", "10.0.0.7:3": "10.0.0.7:3", "localhost:4": "localhost:4",
	} {
		if got := dialable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
