package command

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWhatServesReadsSecretsAgainOnHangup: a daemon and a console go on, and say what they did.
func TestWhatServesReadsSecretsAgainOnHangup(t *testing.T) {
	t.Chdir(t.TempDir())
	survived := make(chan os.Signal, 1)
	signal.Notify(survived, syscall.SIGHUP)
	defer signal.Stop(survived)
	for _, line := range []string{"run", "console"} {
		environ := []string{
			"PACER_KAFKA_BROKERS=127.0.0.1:1", "PACER_REDIS_ADDRS=127.0.0.1:1", "PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer",
			"PACER_SINKS_OUT_TYPE=discard", "PACER_HTTP_LISTEN=127.0.0.1:0",
		}
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		log, written := io.Pipe()
		ended := make(chan int, 1)
		go func() {
			ended <- Run(ctx, []string{line}, World{strings.NewReader(""), io.Discard, written, environ})
			_ = written.Close()
		}()
		read := false
		for lines := bufio.NewScanner(log); lines.Scan(); {
			switch text := lines.Text(); {
			case strings.Contains(text, "console listens"):
				_ = syscall.Kill(os.Getpid(), syscall.SIGHUP)
			case strings.Contains(text, "certificates and secrets were read again; none has changed"):
				read = true
				stop()
			}
		}
		stop()
		if code := <-ended; code != 0 || !read {
			t.Errorf("%s: ends with %d, has read its secrets again: %t", line, code, read)
		}
	}
}

// A daemon and a console serve metrics where they are told to, and say in one line why they cannot.
func TestTheAddressOfMetricsIsUsed(t *testing.T) {
	t.Chdir(t.TempDir())
	taken := try(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }() // nobody has connected
	at := taken.Addr().String()
	for _, line := range []string{"run", "console"} {
		environ := []string{
			"PACER_KAFKA_BROKERS=127.0.0.1:1", "PACER_REDIS_ADDRS=127.0.0.1:1", "PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer",
			"PACER_SINKS_OUT_TYPE=discard", "PACER_LOG_LEVEL=error", "PACER_HTTP_LISTEN=127.0.0.1:0", "PACER_HTTP_METRICS_LISTEN=" + at,
		}
		code, _, said := execute(t, environ, line)
		if code != 1 || !strings.Contains(said, "http.metrics_listen: listen tcp "+at+": bind: address already in use; choose another address") {
			t.Errorf("%s: code %d, says %q", line, code, said)
		}
	}
}
