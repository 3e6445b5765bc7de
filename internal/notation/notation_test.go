package notation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

func TestUntil(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(2 * time.Hour), " 1d12h ": now.Add(36 * time.Hour), "2026-11-20T15:00:01+03:00": now.Add(time.Second),
	} {
		if got, err := ParseUntil(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"": "neither a time", "tomorrow": "neither a time", "-2h": "neither a time", "0s": "is not ahead", "2026-11-20T15:00:00+03:00": "is not ahead",
	} {
		if got, err := ParseUntil(text, now); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q was read as %s, %v", text, got, err)
		}
	}
	if got, err := ParseUntil("0s", now.Add(time.Millisecond)); err == nil {
		t.Errorf("no time at all ends at %s", got)
	}
}

func TestTopics(t *testing.T) {
	for name, want := range map[string]bool{
		"jobs": true, "Jobs.v2_eu-1": true, "...": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "ü": false, "a/b": false, "a\n": false,
	} {
		if got := IsTopic(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1m": time.Minute, "1h": time.Hour, "7d": 7 * Day, "90s": 90 * time.Second, "250ms": 250 * time.Millisecond,
		"30d": 30 * Day, "36h": 36 * time.Hour, "1500us": 1500 * time.Microsecond, "0s": 0, "1ns": 1, "3660d": maxSpan,
	} {
		if got, err := ParseSpan(text); err != nil || got != want || FormatSpan(want) != text {
			t.Errorf("%s: %s, %v, and back %s", text, got, err, FormatSpan(want))
		}
	}
	for text, want := range map[string]time.Duration{
		"1d12h30m": 36*time.Hour + 30*time.Minute, "2w": 14 * Day, "1w2d1.5h": 9*Day + 90*time.Minute, " 0 ": 0, "168h": week,
		"5µs": 5 * time.Microsecond,
	} {
		if got, err := ParseSpan(text); err != nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"99999999999d", "9000000h", "3661d", "4095w", "3660d1s", "99999999999999h"} {
		if got, err := ParseSpan(text); err == nil || !strings.Contains(err.Error(), "is longer than 3660d") {
			t.Errorf("%q was read as %s, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "5", "d", "-1s", "-1d", "1d-1h", "+1h", "xd", "1d1w", "1 d", "1.5d", "fast", "-9999999h",
	} {
		if got, err := ParseSpan(text); err == nil || !strings.Contains(err.Error(), "is not a length of time such as 90s, 1h or 7d") {
			t.Errorf("%q was read as %s, %v", text, got, err)
		}
	}
	for d, want := range map[time.Duration]string{-90 * time.Second: "-90s", 14 * Day: "14d", 1001 * time.Nanosecond: "1001ns"} {
		if got := FormatSpan(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
	if got := FormatSpanWithin(Day, time.Hour); got != "24h" {
		t.Error(got)
	}
}

func TestSpanIsAFlag(t *testing.T) {
	var s Span
	if err := s.Set("1w"); err != nil || time.Duration(s) != week || s.String() != "7d" || s.Type() != "duration" {
		t.Errorf("%v, %s of type %s", err, s.String(), s.Type())
	}
	if err := s.Set("soon"); err == nil || time.Duration(s) != week {
		t.Errorf("%v, %s", err, s.String())
	}
}

func TestParseRate(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want delivery.Rate
		says string // part of the error; "" for none
	}{
		{in: "500", want: delivery.Rate{N: 1, Per: 2000}},
		{in: "2.5", want: delivery.Rate{N: 1, Per: 400_000}},
		{in: "150/m", want: delivery.Rate{N: 1, Per: 400_000}},
		{in: "1/h", want: delivery.Rate{N: 1, Per: 3_600_000_000}},
		{in: "1/w", want: delivery.Rate{N: 1, Per: 604_800_000_000}},
		{in: "1/7d", want: delivery.Rate{N: 1, Per: 604_800_000_000}},
		{in: "1/d", want: delivery.Rate{N: 1, Per: 86_400_000_000}},
		{in: "3/100ms", want: delivery.Rate{N: 3, Per: 100_000}},
		{in: "0.000001", want: delivery.Rate{N: 1, Per: 1_000_000_000_000}},
		{in: "1234.567891", want: delivery.Rate{N: 1_234_567_891, Per: 1_000_000_000_000}},
		{in: "1000000", want: delivery.Rate{N: 1, Per: 1}},
		{in: "0", want: delivery.Rate{}},
		{in: "-1", says: "negative"},
		{in: "many", says: "must be a number"},
		{in: "", says: "must be a number"},
		{in: "1.1234567", says: "six decimals"},
		{in: "1/fortnight", says: "period"},
		{in: "1/1us", says: "send_per"},
		{in: "1000001", says: "above 1000000 per second"},
		{in: "99999999999999", says: "above 1000000 per second"},
		{in: "1e12", says: "must be written out, without an exponent"},
		{in: "1E400", says: "must be written out"},
		{in: "one", says: "must be a number"},
		{in: "0.000001/24h", says: "below one unit"},
	} {
		micros, per, err := ParseRate(tc.in)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q: error %v, want %q in it", tc.in, err, tc.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.in, err)
			continue
		}
		if got, err := delivery.NewRate(micros, per); err != nil || got != tc.want {
			t.Errorf("%q: %+v, %v; want %+v", tc.in, got, err, tc.want)
		}
	}
}

func TestWindows(t *testing.T) {
	const text = "300/1m,5/10s:log,7/1h:fixed,300000/1d:fixed:day@Europe/Moscow,1/31d:fixed:month"
	windows, err := ParseWindows(" " + strings.ReplaceAll(text, ",", " , "))
	want := []delivery.Window{
		{Span: time.Minute, Limit: 300, Algorithm: "sliding"}, {Span: 10 * time.Second, Limit: 5, Algorithm: "log"},
		{Span: time.Hour, Limit: 7, Algorithm: "fixed"},
		{Span: Day, Limit: 300000, Algorithm: "fixed", Anchor: "day@Europe/Moscow"},
		{Span: 31 * Day, Limit: 1, Algorithm: "fixed", Anchor: "month"},
	}
	if err != nil || !slices.Equal(windows, want) {
		t.Errorf("%+v, %v", windows, err)
	}
	if windows, err := ParseWindows(" "); err != nil || windows == nil || len(windows) != 0 {
		t.Errorf("%+v, %v", windows, err)
	}
	for _, text := range []string{"300", "300/", "x/1m", "3.5/1m", "1/1m,,2/1h", "1/soon"} {
		if windows, err := ParseWindows(text); err == nil || !strings.HasPrefix(err.Error(), "window ") {
			t.Errorf("%q was read as %+v, %v", text, windows, err)
		}
	}
	if _, err := ParseWindows("99999999999999999999/1d"); err == nil || !strings.Contains(err.Error(), "the limit is out of range") {
		t.Error(err)
	}
	words := make([]string, len(want))
	for i, w := range want {
		words[i] = FormatWindow(w)
	}
	if got := strings.Join(words, ","); got != text {
		t.Error(got)
	}
}

func TestRampWords(t *testing.T) {
	for words, want := range map[string]string{
		"start=10,add=5,every=1m":           `{"add":5,"every":"1m","start":10}`,
		" start=0.5 , every=90s,factor=1.5": `{"every":"90s","factor":1.5,"start":0.5}`,
		"none":                              "",
		"":                                  "",
	} {
		raw, err := ParseRamp(words)
		if err != nil || string(raw) != want {
			t.Errorf("%q: %s, %v", words, raw, err)
		}
	}
	for _, words := range []string{"fast", "start=10,start=5", "start=ten,add=5,every=1m", "from=10", "start=-1", "start=1.1234567"} {
		if raw, err := ParseRamp(words); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q was read as %s (%v)", words, raw, err)
		}
	}
	for raw, want := range map[string]string{
		`{"start": 10, "add": 5, "every": "1 minute"}`:        "start=10,add=5,every=1m",
		`{"start": 0.5, "factor": 1.5, "every": "36 hours"}`:  "start=0.5,factor=1.5,every=36h",
		`{"start": 0.5, "factor": 1.5, "every": "2 weeks"}`:   "start=0.5,factor=1.5,every=14d",
		`{"start": 0.5, "factor": 1.5, "every": "sometimes"}`: `{"start": 0.5, "factor": 1.5, "every": "sometimes"}`,
		"": "",
	} {
		if got := FormatRamp(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

func TestEvery(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1s": time.Second, "1 second": time.Second, "90 seconds": 90 * time.Second, "2m": 2 * time.Minute, "1 hour": time.Hour,
		"3 days": 3 * Day, "2w": 14 * Day, "52 weeks": 364 * Day,
	} {
		if got, err := parseEvery(text); err != nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "s", "ss", "5 ss", "5  s", "-5s", "1.5h", "1h30m", "1 month", "2000000000 weeks", "99999999999s"} {
		if got, err := parseEvery(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}

func TestHoursWords(t *testing.T) {
	for _, tc := range []struct{ words, json, again string }{
		{
			"mon-fri 09:00-21:00; sat 10:00-18:00",
			`[{"days":["mon","tue","wed","thu","fri"],"from":"09:00","to":"21:00"},{"days":["sat"],"from":"10:00","to":"18:00"}]`,
			"mon-fri 09:00-21:00; sat 10:00-18:00",
		},
		{" 22:00-06:00 ", `[{"from":"22:00","to":"06:00"}]`, "22:00-06:00"},
		{"sat-mon,wed 00:00-24:00", `[{"days":["sat","sun","mon","wed"],"from":"00:00","to":"24:00"}]`, "mon,wed,sat,sun 00:00-24:00"},
		{"fri-thu 09:00-10:00", `[{"days":["fri","sat","sun","mon","tue","wed","thu"],"from":"09:00","to":"10:00"}]`, "mon-sun 09:00-10:00"},
		{"none", "", ""},
	} {
		raw, err := ParseHours(tc.words)
		if err != nil || string(raw) != tc.json || FormatHours(raw) != tc.again {
			t.Errorf("%q: %s, %s, %v", tc.words, raw, FormatHours(raw), err)
		}
		if len(raw) > 0 {
			if _, err := DecodeHours(string(raw), "Europe/Moscow", ""); err != nil {
				t.Errorf("%q: %v", tc.words, err)
			}
		}
	}
	if got := FormatHours(json.RawMessage(`{"mon": 5}`)); got != `{"mon": 5}` {
		t.Error(got)
	}
	for _, words := range []string{"always", "mon-fri", "monday 09:00-21:00", "mon-frx 09:00-21:00", "mon 09:00", "mon 09:00-10:00 11:00-12:00", "mon 09:00-21:00;"} {
		if raw, err := ParseHours(words); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q was read as %s (%v)", words, raw, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "64MiB": 64 << 20, "64 mib": 64 << 20, "500kB": 500_000, "2GB": 2e9, "3GiB": 3 << 30, "7B": 7,
	} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v", text, got, err)
		}
		if again, err := ParseSize(want.String()); again != want || err != nil {
			t.Errorf("%d is printed as %s", want, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "9999999999GiB", "64TB", "x"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d", text, n)
		}
	}
}

// TestWhatIsFormattedReadsAsTheSame holds each pair of functions against the other.
func TestWhatIsFormattedReadsAsTheSame(t *testing.T) {
	spans := rapid.Int64Range(0, int64(maxSpan))
	units := rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, Day})
	span := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(spans.Draw(t, "span")).Truncate(units.Draw(t, "unit"))
	})
	rapid.Check(t, func(t *rapid.T) {
		d := span.Draw(t, "d")
		if got, err := ParseSpan(FormatSpan(d)); err != nil || got != d {
			t.Fatalf("%s is %s, which is %s, %v", d, FormatSpan(d), got, err)
		}
		if got, err := ParseSpan(d.String()); err != nil || got != d {
			t.Fatalf("Go's %s is %s, %v", d, got, err)
		}

		n := rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "millionths")
		if got, err := ParseMicros(FormatMicros(n)); err != nil || got != n {
			t.Fatalf("%d is %s, which is %d, %v", n, FormatMicros(n), got, err)
		}
		per := max(d, time.Millisecond).Truncate(time.Microsecond)
		if _, err := delivery.NewRate(n, per); err == nil {
			text := FormatMicros(n) + "/" + FormatSpan(per)
			if micros, period, err := ParseRate(text); err != nil || micros != n || period != per {
				t.Fatalf("%s is %d in %s, %v", text, micros, period, err)
			}
		}

		w := delivery.Window{
			Limit: rapid.Int64().Draw(t, "limit"), Span: d,
			Algorithm: rapid.SampledFrom([]string{"sliding", "fixed", "log"}).Draw(t, "algorithm"),
			Anchor:    rapid.SampledFrom([]string{"", "day", "month@Europe/Moscow"}).Draw(t, "anchor"),
		}
		if got, err := ParseWindows(FormatWindow(w)); err != nil || len(got) != 1 || got[0] != w {
			t.Fatalf("%+v is %s, which is %+v, %v", w, FormatWindow(w), got, err)
		}

		size := Size(rapid.Int64Range(0, 1<<40).Draw(t, "size") << rapid.IntRange(0, 20).Draw(t, "shift"))
		if got, err := ParseSize(size.String()); err != nil || got != size {
			t.Fatalf("%d is %s, which is %d, %v", size, size, got, err)
		}
	})
}

// TestSchedulesThatAreFormattedReadAsTheSame is the same for what is kept as JSON.
func TestSchedulesThatAreFormattedReadAsTheSame(t *testing.T) {
	minutes := rapid.IntRange(0, 24*60-1)
	rapid.Check(t, func(t *rapid.T) {
		spans := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) spanJSON {
			s := spanJSON{From: clock(minutes.Draw(t, "from")), To: clock(1 + minutes.Draw(t, "to"))}
			for _, d := range weekdays {
				if rapid.Bool().Draw(t, d) {
					s.Days = append(s.Days, d)
				}
			}
			return s
		}), 1, 5).Draw(t, "spans")
		hours, _ := json.Marshal(spans)
		if again, err := ParseHours(FormatHours(hours)); err != nil || string(again) != string(hours) {
			t.Fatalf("%s is %q, which is %s, %v", hours, FormatHours(hours), again, err)
		}

		number := rapid.Int64Range(1, 1_000_000_000)
		fields := map[string]any{
			"start": json.Number(FormatMicros(number.Draw(t, "start"))),
			"every": FormatSpan(time.Duration(rapid.IntRange(1, 1_000_000).Draw(t, "seconds")) * time.Second),
		}
		step := rapid.SampledFrom([]string{"add", "factor"}).Draw(t, "step")
		fields[step] = json.Number(FormatMicros(number.Draw(t, step)))
		ramp, _ := json.Marshal(fields)
		if again, err := ParseRamp(FormatRamp(ramp)); err != nil || string(again) != string(ramp) {
			t.Fatalf("%s is %q, which is %s, %v", ramp, FormatRamp(ramp), again, err)
		}
	})
}

// clock spells minutes since midnight.
func clock(minutes int) string { return fmt.Sprintf("%02d:%02d", minutes/60, minutes%60) }

// TestWhatIsShortenedStaysText: no character is cut in two.
func TestWhatIsShortenedStaysText(t *testing.T) {
	for _, text := range []string{strings.Repeat("я", 40), "x" + strings.Repeat("я", 40), "x" + strings.Repeat("€", 40)} {
		if short := Shorten(text); !utf8.ValidString(short) || len(short) >= len(text) || !strings.HasSuffix(short, "...") {
			t.Errorf("%q", short)
		}
	}
}
