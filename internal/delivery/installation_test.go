package delivery

import (
	"strings"
	"testing"
)

func TestOtherInstallations(t *testing.T) {
	mine := Installation{"pacer", "pacer.lanes"}
	for other, want := range map[Installation]string{
		mine:                     "",
		{"pacer", "night.lanes"}: "topic night.lanes",
		{"night", "night.lanes"}: `consumer group "night"`,
		{"night", "pacer.lanes"}: "each job that waits there is sent by both",
	} {
		got := mine.Other([]Installation{mine, other})
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%+v: %q", other, got)
		}
	}
}
