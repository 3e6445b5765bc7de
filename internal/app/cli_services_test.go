package app

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// What go-redis writes by itself would be lines in another format among the daemon's own.
func TestTheRedisClientSpeaksThroughTheLog(t *testing.T) {
	t.Chdir(t.TempDir())
	for level, want := range map[string]bool{"info": false, "debug": true} {
		var said bytes.Buffer
		s, err := Invocation{
			Environ: []string{"PACER_REDIS_ADDRS=127.0.0.1:1", "PACER_LOG_LEVEL=" + level, "PACER_LOG_FORMAT=json"}, Stderr: &said,
		}.services(NeedRedis)
		if err != nil {
			t.Fatal(err)
		}
		client, err := s.redis()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := client.Ping(ctx).Err(); err == nil {
			t.Error("something answers on port 1")
		}
		cancel()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(said.String(), "failed to dial"); got != want {
			t.Errorf("at level %s the log says %q", level, said.String())
		}
		for line := range strings.Lines(said.String()) {
			if !strings.HasPrefix(line, "{") {
				t.Errorf("not a line of the log: %q", line)
			}
		}
	}
}

func TestAMisspelledVariableIsNamedWhereItsValueIsMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	var said bytes.Buffer
	_, err := Invocation{Environ: []string{"PACER_KAFKA_BROKRES=127.0.0.1:9092"}, Stderr: &said}.services(NeedKafka)
	if ExitCode(err) != 2 || !strings.Contains(err.Error(), "kafka.brokers: required") ||
		!strings.Contains(err.Error(), "did you mean PACER_KAFKA_BROKERS?") || said.Len() > 0 {
		t.Fatalf("error %v, said %q", err, said.String())
	}
}
