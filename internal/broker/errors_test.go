package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

func TestNotWritten(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{kafka.NotEnoughReplicas, true},
		{kafka.NotLeaderForPartition, true},
		{fmt.Errorf("produce: %w", kafka.MessageSizeTooLarge), true},
		{fmt.Errorf("topic x: %w", ErrNoTopic), true},
		{fmt.Errorf("produce: %w", protocol.NewErrNoTopic("x")), true},
		{fmt.Errorf("produce: %w", protocol.NewErrNoPartition("x", 1)), true},
		{fmt.Errorf("produce: %w", protocol.NewErrNoLeader("x", 1)), true},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{fmt.Errorf("produce: %w", &unsent{context.DeadlineExceeded}), true},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, false},
		{io.ErrUnexpectedEOF, false},
		{kafka.Unknown, false},
		{kafka.RequestTimedOut, false},
		{kafka.NetworkException, false},
		{kafka.NotEnoughReplicasAfterAppend, false},
		{kafka.KafkaStorageError, false},
		{fmt.Errorf("produce: %w: %w", errAppended, kafka.NotLeaderForPartition), false},
	} {
		if got := NotWritten(c.err); got != c.want {
			t.Errorf("NotWritten(%v) = %t", c.err, got)
		}
	}
}

func TestDeclined(t *testing.T) {
	for err, want := range map[error]bool{
		kafka.OffsetMetadataTooLarge: true, kafka.TopicAuthorizationFailed: true, kafka.UnknownTopicOrPartition: true,
		kafka.IllegalGeneration: false, kafka.NotCoordinatorForGroup: false, kafka.RequestTimedOut: false, context.DeadlineExceeded: false,
	} {
		if got := Declined(fmt.Errorf("commit: %w", err)); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
	if Declined(nil) {
		t.Error("a commit that was accepted is declined")
	}
}

// A topic that is denied for good is named once, and hides no outage.
func TestHealth(t *testing.T) {
	var log bytes.Buffer
	h := NewHealth(slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		h.Fail("denied/0", kafka.TopicAuthorizationFailed)
		h.Fail("denied/1", kafka.TopicAuthorizationFailed)
		h.Fail("jobs/0", io.ErrUnexpectedEOF)
		h.Fail("jobs/1", io.ErrUnexpectedEOF)
		h.Fail("jobs/2", fmt.Errorf("fetch: %w", &unsent{kafka.SASLAuthenticationFailed}))
		h.OK("jobs/2")
		h.OK("jobs/0")
		h.OK("jobs/1")
	}
	h.OK("denied/0")
	h.OK("denied/1")
	for line, want := range map[string]int{"at=denied/0": 1, "at=denied/1": 0, "at=jobs/0": 3, "at=jobs/1": 0,
		"level=ERROR": 3, "correct kafka.sasl.username or kafka.sasl.password": 3, "answers again": 7,
	} {
		if got := strings.Count(log.String(), line); got != want {
			t.Errorf("%d lines with %q, want %d:\n%s", got, line, want, &log)
		}
	}
}
