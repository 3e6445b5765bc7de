package top

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// A picture fits its terminal and says how much is left out.
func TestTopFits(t *testing.T) {
	now := &Frame{At: start}
	for i := range 2_000 {
		now.Campaigns = append(now.Campaigns, Row{Campaign: fmt.Sprintf("%s-%05d", strings.Repeat("long", i%60), i), SendRate: new(123456789.0)})
	}
	for i := range 100 {
		now.Quotas = append(now.Quotas, QuotaRow{Quota: fmt.Sprintf("%s-%d", strings.Repeat("quota", i%20), i), Window: "31d", Remaining: new(int64(1e14))})
	}
	for _, size := range []size{{80, 24}, {120, 40}, {200, 60}, {99, 12}, {60, 8}} {
		frame := now.Arrange(nil, Query{Sort: ByRate, Limit: size.height})
		frame.Address, frame.Reason = "127.0.0.1:8080", strings.Repeat("because ", 30)
		text := picture(&frame, size, "q quits")
		lines := strings.Split(text, "\n")
		if len(lines) > size.height {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > max(size.width, 80) {
				t.Errorf("%v: %d characters: %s", size, n, line)
			}
		}
		if size.height >= 12 && (!strings.Contains(text, "campaigns more") || !strings.Contains(text, "windows more")) {
			t.Errorf("%v:\n%s", size, text)
		}
	}
}

func TestTopFigures(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	for want, got := range map[string]string{
		"-": number(nil), "0": number(v(0)), "2.5": number(v(2.5)), "0.017": number(v(1.0 / 60)), "0.00028": number(v(1.0 / 3600)), "100": number(v(99.96)), "1,000": number(v(999.7)),
		"999,949": number(v(999_949)), "1.0M": number(v(999_950)), "12.3M": number(v(12_345_678)), "1.0G": number(v(1e9)), "a lot": number(v(1e300)),
		"16s": toGo(v(16)), "3m05s": toGo(v(185)), "2h00m": toGo(v(7200)), "4d01h": toGo(v(4*86400 + 3600)), "years": toGo(v(1e12)),
		"2.5 ms": milliseconds(v(0.0025)), "?[31mx": fit("\x1b[31mx", 10), "abc…": fit("abcdef", 4),
		"██░░": Bar(0.5, 4), "████": Bar(7, 4), "░░░░": Bar(-1, 4),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
