package command

import (
	"net"
	"strings"
	"testing"
)

// A daemon and a console serve metrics where they are told to, and say in one line why they cannot.
func TestTheAddressOfMetricsIsUsed(t *testing.T) {
	t.Chdir(t.TempDir())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
