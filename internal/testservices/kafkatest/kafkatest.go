// Package kafkatest contains helpers for tests that talk to Kafka: a broker in the process, one in memory, and a log
// that can be read.
package kafkatest

import (
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster starts a broker in this process, or several if the options say so.
func Cluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// Eventually waits for a condition that other goroutines make true.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Message returns the message of a request that package broker encodes itself; nil for those of kafka-go.
func Message(request kafka.Request) kmsg.Request {
	message, _ := field(request, "Request").(kmsg.Request)
	return message
}

// Answer is Message for a response.
func Answer(response kafka.Response) kmsg.Response {
	message, _ := field(response, "Response").(kmsg.Response)
	return message
}

func field(of any, name string) any {
	is := reflect.ValueOf(of).Elem().FieldByName(name)
	if !is.IsValid() {
		return nil
	}
	return is.Interface()
}

// LogBook records the log lines of a test. The zero value is ready; safe for concurrent use.
type LogBook struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer.
func (b *LogBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

// Logger returns a logger that writes to the book.
func (b *LogBook) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Lines returns the lines of a level; "" for all.
func (b *LogBook) Lines(level string) (lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if strings.Contains(l, "level="+level) {
			lines = append(lines, l)
		}
	}
	return lines
}

// Count returns the number of lines of a level.
func (b *LogBook) Count(level string) int { return len(b.Lines(level)) }
