package notation

import (
	"strings"
	"testing"
	"time"
)

// TestTimeIn: an instant, or what the clocks of a zone show, now or next.
func TestTimeIn(t *testing.T) {
	moscow, err := Zone("Europe/Moscow")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 14, 59, 30, 0, time.UTC) // 17:59:30
	for text, want := range map[string]string{
		"18:00": "2026-11-20T15:00:00Z", " 17:59 ": "2026-11-21T14:59:00Z", "00:00": "2026-11-20T21:00:00Z", "24:00": "2026-11-20T21:00:00Z",
		"2026-12-01T18:00": "2026-12-01T15:00:00Z", "2026-12-01T18:00:30": "2026-12-01T15:00:30Z",
		"2026-12-01T18:00+05:00": "2026-12-01T13:00:00Z", "2026-12-01T18:00Z": "2026-12-01T18:00:00Z", "2026-12-01T18:00:00+05:00": "2026-12-01T13:00:00Z",
	} {
		if got, err := ParseTimeIn(text, moscow, now); err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v", text, got.UTC(), err)
		}
	}
	for _, text := range []string{"", "tomorrow", "6pm", "25:00", "2026-13-01T18:00", "18:00:00:00", "0001-01-01T00:00:00Z", "0001-01-01T00:00Z", strings.Repeat("9", 1000)} {
		if got, err := ParseTimeIn(text, moscow, now); err == nil || !strings.Contains(err.Error(), "is not a time such as 18:00") || len(err.Error()) > 200 {
			t.Errorf("%q was read as %s, %v", text, got, err)
		}
	}
}
