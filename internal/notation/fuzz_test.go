package notation

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// maxMessage bounds what an error says of a text, however long that is.
const maxMessage = 1000

// FuzzNotation: what people and producers write never panics, values are within their bounds, they are read as they were
// meant once they are written by pacer, and errors are short.
func FuzzNotation(f *testing.F) {
	for _, s := range []string{
		"", "90s", "1d12h", "2w", "10.5h", "64MiB", "500 kB", "9223372036854775807GiB", "300/1m", "0.000001/s", "1000/1h,1/1d:fixed:day@UTC",
		"mon-fri 09:00-18:00", "mon 22:00-02:00, sat,sun 00:00-24:00", "100/s every 10m +100/s to 1000/s", "[{\"days\":[\"mon\"]}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		short := func(err error) {
			if err != nil && len(err.Error()) > maxMessage {
				t.Errorf("an error of %d bytes: %.1000s", len(err.Error()), err)
			}
		}
		span, err := ParseSpan(text)
		if short(err); err == nil {
			if again, err := ParseSpan(FormatSpan(span)); err != nil || again != span || span < 0 || span > maxSpan {
				t.Errorf("%q is %s, and then %s, %v", text, span, again, err)
			}
		}
		size, err := ParseSize(text)
		if short(err); err == nil {
			if again, err := ParseSize(size.String()); err != nil || again != size || size < 0 {
				t.Errorf("%q is %s, and then %s, %v", text, size, again, err)
			}
		}
		micros, period, err := ParseRate(text)
		if short(err); err == nil && (micros < 0 || period <= 0) {
			t.Errorf("%q is %d millionths in %s", text, micros, period)
		}
		micros, err = ParseMicros(text)
		if short(err); err == nil && micros < 0 {
			t.Errorf("%q is %d millionths", text, micros)
		}
		checkWindows(t, text, short)
		schedule(text, short)
	})
}

// checkWindows reads windows of a quota.
func checkWindows(t *testing.T, text string, short func(error)) {
	windows, err := ParseWindows(text)
	if short(err); err != nil {
		return
	}
	if len(windows) > strings.Count(text, ",")+1 {
		t.Errorf("%q has %d windows", text, len(windows))
	}
	for _, w := range windows {
		if len(w.Algorithm) > 50 || len(w.Anchor) > 50 {
			continue // is shortened, and refused by the catalog
		}
		if again, err := parseWindow(FormatWindow(w)); err != nil || again != w && w.Algorithm != "" && w.Algorithm != delivery.AlgorithmSliding {
			t.Errorf("%+v of %q is written %s and read as %+v, %v", w, text, FormatWindow(w), again, err)
		}
	}
}

// schedule reads active hours and ramps, in words and as they are stored.
func schedule(text string, short func(error)) {
	if hours, err := ParseHours(text); err == nil {
		_, err = DecodeHours(string(hours), "Europe/Moscow", "")
		short(err)
	} else {
		short(err)
	}
	hours, err := DecodeHours(text, "Europe/Moscow", "")
	if short(err); err == nil && hours != nil {
		hours.Active(time.Unix(1_800_000_000, 0))
		hours.NextChange(time.Unix(1_800_000_000, 0))
	}
	_, err = DecodeHours("", text, "")
	short(err)
	_, err = DecodeHours("", "UTC", text)
	short(err)
	_, err = ParseRamp(text)
	short(err)
	ramp, err := DecodeRamp(text, time.Second, time.Unix(1_800_000_000, 0))
	if short(err); err == nil && ramp != nil {
		c := delivery.Campaign{ID: "c", Status: delivery.StatusActive, Rate: delivery.PerSecond(1000), Ramp: ramp}
		c.Finish(time.Unix(1_800_000_000, 0), 1e6, delivery.Unbounded)
	}
}
