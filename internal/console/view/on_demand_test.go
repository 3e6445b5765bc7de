package view

import (
	"testing"
	"time"
)

// TestOpenMinutesAreNotOnPages: units are reserved in them, and not sent.
func TestOpenMinutesAreNotOnPages(t *testing.T) {
	for now, end := range map[string]string{"2026-12-01T12:00:00Z": "2026-12-01T11:59:00Z", "2026-12-01T12:00:59Z": "2026-12-01T11:59:00Z"} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		if got := Settled(at).Format(time.RFC3339); got != end {
			t.Errorf("at %s it ends at %s", now, got)
		}
	}
}
