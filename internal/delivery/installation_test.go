package delivery

import (
	"strings"
	"testing"
)

func TestOtherInstallations(t *testing.T) {
	mine := Installation{"A", "pacer", "pacer.", 1}
	for other, want := range map[Installation]string{
		{}:                          "", // of a database that was not set up with Kafka
		mine:                        "",
		{"B", "pacer", "pacer.", 1}: "", // which the broker's client sees
		{"A", "night", "pacer.", 1}: `for the consumer group "night" and topics pacer.*, not for "pacer" and pacer.*`,
		{"A", "pacer", "night.", 1}: "topics night.*",
		{"A", "pacer", "pacer.", 0}: "", // of a database that was set up without Redis
		{"A", "pacer", "pacer.", 4}: "for 4 shards of Redis, not for 1",
	} {
		got := other.Other(mine)
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%+v: %q", other, got)
		}
	}
}
