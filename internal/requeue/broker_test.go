package requeue

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/segmentio/kafka-go"
)

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{kafka.NotEnoughReplicas, true},
		{kafka.NotLeaderForPartition, true},
		{fmt.Errorf("produce: %w", kafka.MessageSizeTooLarge), true},
		{fmt.Errorf("topic x: %w", ErrNoTopic), true},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, false},
		{io.ErrUnexpectedEOF, false},
		{kafka.Unknown, false},
		{kafka.RequestTimedOut, false},
		{kafka.NetworkException, false},
		{kafka.NotEnoughReplicasAfterAppend, false},
	} {
		if got := refused(c.err); got != c.want {
			t.Errorf("refused(%v) = %t", c.err, got)
		}
	}
}
