package broker

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/segmentio/kafka-go"
)

func TestLackingOperations(t *testing.T) {
	all := []Operation{OpRead, OpWrite, OpDelete, OpDescribeConfigs}
	for allowed, want := range map[int32]string{
		0:                    "[Read Write Delete DescribeConfigs]",
		1<<3 | 1<<8:          "[Write Delete DescribeConfigs]",
		1<<3 | 1<<4 | 1<<10:  "[Delete]",
		1<<13 - 1:            "[]",
		math.MinInt32:        "[]", // the broker does not tell
		math.MinInt32 | 1<<4: "[Read Delete DescribeConfigs]",
	} {
		if got := fmt.Sprint(lacking(allowed, all)); got != want {
			t.Errorf("%b: %s, want %s", allowed, got, want)
		}
	}
}

// TestRefusedLoginsNameTheirSetting: what an operator has to correct is in the line.
func TestRefusedLoginsNameTheirSetting(t *testing.T) {
	for code, want := range map[kafka.Error]string{
		kafka.SASLAuthenticationFailed:   "; correct kafka.sasl.username or kafka.sasl.password",
		kafka.UnsupportedSASLMechanism:   "; correct kafka.sasl.mechanism",
		kafka.TopicAuthorizationFailed:   "; the user of kafka.sasl lacks a right",
		kafka.GroupAuthorizationFailed:   "; the user of kafka.sasl lacks a right",
		kafka.ClusterAuthorizationFailed: "; the user of kafka.sasl lacks a right",
		kafka.LeaderNotAvailable:         "",
	} {
		err := fmt.Errorf("read topics: %w", code)
		again := Explained(fmt.Errorf("once more: %w", Explained(err)))
		if got := again.Error(); got != "once more: "+err.Error()+want || !errors.Is(again, code) {
			t.Errorf("%q, want %q at the end, once", got, want)
		}
	}
	if Explained(nil) != nil {
		t.Error("no error was explained")
	}
}
