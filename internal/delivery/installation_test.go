package delivery

import (
	"strings"
	"testing"
)

func TestOtherInstallations(t *testing.T) {
	mine := Installation{"pacer", "pacer.lanes", "A"}
	for other, want := range map[Installation]string{
		mine:                          "",
		{"pacer", "pacer.lanes", ""}:  "", // written by brokers that know none
		{"pacer", "pacer.lanes", "B"}: `Kafka cluster "B"`,
		{"pacer", "night.lanes", "A"}: "topic night.lanes",
		{"night", "night.lanes", ""}:  `consumer group "night"`,
		{"night", "pacer.lanes", "A"}: "each job that waits there is sent by both",
	} {
		got := mine.Other([]Installation{mine, other})
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%+v: %q", other, got)
		}
	}
}
