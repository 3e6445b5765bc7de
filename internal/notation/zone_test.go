package notation

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFirstShown(t *testing.T) {
	for _, tc := range []struct{ zone, shown, want string }{
		{"Asia/Yekaterinburg", "2026-12-01T10:00:00", "2026-12-01T05:00:00Z"},
		{"Europe/Berlin", "2026-03-29T01:59:59", "2026-03-29T00:59:59Z"},
		{"Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:00:00Z"}, // left out: when the clocks are put forward
		{"Europe/Berlin", "2026-03-29T03:00:00", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-10-25T01:30:00", "2026-10-24T23:30:00Z"},
		{"Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00Z"}, // shown twice: the first
		{"Europe/Berlin", "2026-10-25T03:00:00", "2026-10-25T02:00:00Z"},
		{"Asia/Beirut", "2026-03-29T00:30:00", "2026-03-28T22:00:00Z"}, // at midnight
		{"Australia/Lord_Howe", "2026-10-04T02:15:00", "2026-10-03T15:30:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T01:45:00", "2026-04-04T14:45:00Z"},
		{"Pacific/Apia", "2011-12-30T12:00:00", "2011-12-30T10:00:00Z"}, // a day that it left out
		{"UTC", "2026-12-31T23:59:59", "2026-12-31T23:59:59Z"},
	} {
		zone, err := Zone(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := time.Parse("2006-01-02T15:04:05", tc.shown)
		if err != nil {
			t.Fatal(err)
		}
		if got := FirstShown(shown, zone); got.UTC().Format(time.RFC3339) != tc.want || got.Location() != zone {
			t.Errorf("%s in %s is %s, want %s", tc.shown, tc.zone, got.UTC(), tc.want)
		}
	}
}

// TestNothingEarlierIsShown: the clock shows the time or a later one, and not a second before.
func TestNothingEarlierIsShown(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		zone, err := Zone(rapid.SampledFrom([]string{
			"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Beirut", "America/New_York", "Asia/Kolkata", "Pacific/Apia",
		}).Draw(rt, "zone"))
		if err != nil {
			rt.Fatal(err)
		}
		shown := time.Unix(rapid.Int64Range(1_260_000_000, 1_900_000_000).Draw(rt, "shown"), 0).UTC()
		clock := func(at time.Time) time.Time { return at.UTC().Add(Offset(at.In(zone))) }
		got := FirstShown(shown, zone)
		for before := time.Second; before < 30*time.Hour; before += 7 * time.Minute {
			if is := clock(got.Add(-before)); !is.Before(shown) {
				rt.Fatalf("%s before %s, the clock shows %s already, not before %s", before, got, is, shown)
			}
		}
		if clock(got).Before(shown) {
			rt.Fatalf("at %s the clock shows %s, before %s", got, clock(got), shown)
		}
	})
}

// TestZonesAreBounded: names that are none, or that only a file system knows, are refused and not kept.
func TestZonesAreBounded(t *testing.T) {
	count := func() (n int) {
		zones.Range(func(any, any) bool { n++; return true })
		return n
	}
	if _, err := Zone("Europe/Moscow"); err != nil {
		t.Fatal(err)
	}
	before := count()
	for _, name := range []string{
		"", "Local", "Mars/Olympus", "europe/moscow", "Europe//Moscow", "Europe/./Moscow", "Europe/../Europe/Moscow", "/usr/share/zoneinfo/UTC",
		"posix/Europe/Moscow", "MSK-3", "+03:00", "Europe", "recipient", "hold", strings.Repeat("A", 10_000), "Europe/Moscow\x00",
	} {
		if zone, err := Zone(name); err == nil || len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q is %s, %v", Shorten(name), zone, err)
		}
	}
	if n := count(); n != before {
		t.Errorf("%d zones are kept, %d before", n, before)
	}
}

func TestParseMinutes(t *testing.T) {
	for text, want := range map[string]int{"": 0, "none": 0, "0": 1, "0,15, 30 ,45": 4, "59": 1} {
		if got, err := ParseMinutes(text); err != nil || len(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"60", "-1", "0,", "a", "0;15", "1.5", strings.Repeat("0,", 60) + "0"} {
		if _, err := ParseMinutes(text); err == nil || !strings.Contains(err.Error(), "avoid_minutes") {
			t.Errorf("%q: %v", Shorten(text), err)
		}
	}
}
