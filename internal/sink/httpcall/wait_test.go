package httpcall

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

func TestWaitOf(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	in := func(seconds int64) string { return strconv.FormatInt(now.Unix()+seconds, 10) }
	for _, tt := range []struct {
		name   string
		header http.Header
		want   time.Duration
	}{
		{"nothing", http.Header{}, 0},
		{"Retry-After comes first", http.Header{"Retry-After": {"5"}, "Ratelimit": {`"a";r=0;t=9`}}, 5 * time.Second},
		{"one limit", http.Header{"Ratelimit": {`"default";r=0;t=30`}}, 30 * time.Second},
		{"other order", http.Header{"Ratelimit": {`"default";t=30;r=0`}}, 30 * time.Second},
		{"the limit that is used up", http.Header{"Ratelimit": {`"day";r=7;t=9000, "burst";r=0;t=2`}}, 2 * time.Second},
		{"the longest of them", http.Header{"Ratelimit": {`"day";r=0;t=9000, "burst";r=0;t=2`}}, 9000 * time.Second},
		{"not used up", http.Header{"Ratelimit": {`"day";r=7;t=9000`}}, 0},
		{"older draft", http.Header{"Ratelimit": {"limit=100, remaining=0, reset=50"}}, 50 * time.Second},
		{"oldest draft", http.Header{"Ratelimit-Limit": {"100"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"50"}}, 50 * time.Second},
		{"another limit was hit", http.Header{"Ratelimit-Remaining": {"3"}, "Ratelimit-Reset": {"50"}}, 0},
		{"an instant", http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {in(60)}}, time.Minute},
		{"an instant that has passed", http.Header{"X-Rate-Limit-Reset": {in(-60)}}, time.Second},
		{"a day at most", http.Header{"Ratelimit": {`"x";r=0;t=99999999999999999999`}}, 24 * time.Hour},
		{"a day at most, by an instant", http.Header{"X-Ratelimit-Reset": {in(10_000_000)}}, 24 * time.Hour},
		{"nonsense", http.Header{"Ratelimit": {`;;,,=;t=;r=,"t=5`}, "Ratelimit-Reset": {"-5"}, "X-Ratelimit-Reset": {"1.5"}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := (Answer{Header: tt.header}).Wait(now); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestParseWait: of what an answer says elsewhere.
func TestParseWait(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	for said, want := range map[string]time.Duration{
		"": 0, "x": 0, "-1": 0, "NaN": 0, "7": 7 * time.Second, "0.1": time.Second, "1.2": 2 * time.Second, "1e300": 24 * time.Hour,
		"999999999999999999999": 24 * time.Hour, "1800000060": time.Minute, now.Add(time.Minute).Format(http.TimeFormat): time.Minute,
	} {
		if d := ParseWait(said, now); d != want {
			t.Errorf("%q: %s, want %s", said, d, want)
		}
	}
}

// FuzzWait: for any headers, a wait is within its bounds.
func FuzzWait(f *testing.F) {
	for _, s := range []string{
		"", "0", "1", "-1", "+5", "1.5", "99999999999999999999", "Fri, 31 Dec 1999 23:59:59 GMT",
		"Friday, 31-Dec-99 23:59:59 GMT", "Fri Dec 31 23:59:59 1999",
		"soon", " 7 ", `"default";r=0;t=30`, `"day";r=7;t=9000, "burst";r=0;t=2`, "limit=100, remaining=0, reset=50", "1800000060",
		`"a,b;c=d";r=0;t=1`, "t=99999999999999999999999", ";;,,==",
	} {
		f.Add(s, "Fri, 31 Dec 1999 23:00:00 GMT", "", "", "")
		f.Add(s, "", "", "", "")
		f.Add("", "", s, s, "0")
	}
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, after, date, limit, reset, remaining string) {
		d := Answer{Header: http.Header{
			"Retry-After": {after}, "Date": {date}, "Ratelimit": {limit}, "X-Ratelimit-Reset": {reset}, "X-Ratelimit-Remaining": {remaining},
		}}.Wait(now)
		if d != 0 && (d < minRetryAfter || d > maxRetryAfter) {
			t.Errorf("%q at %q, %q, %q, %q give %s", after, date, limit, reset, remaining, d)
		}
	})
}
