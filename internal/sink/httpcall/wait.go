package httpcall

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds on the delay that an answer asks for. The lower one is the headers' own granularity: a destination that answers
// 429 with "Retry-After: 0" must not be sent job after job, since such answers use up no attempt.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 24 * time.Hour
)

// Wait returns how long an answer asks to wait: by Retry-After, else by RateLimit or its predecessors; 0 if it does not say.
func (a Answer) Wait(now time.Time) time.Duration {
	h := a.Header
	if d := a.RetryAfter(now); d > 0 {
		return d
	}
	if d, ok := rateLimit(h.Get("RateLimit")); ok {
		return d
	}
	for _, prefix := range [...]string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
		if left := h.Get(prefix + "Remaining"); left != "" && left != "0" {
			continue // another limit was hit
		}
		if d, ok := reset(h.Get(prefix+"Reset"), now); ok {
			return d
		}
	}
	return 0
}

// RetryAfter parses a Retry-After header: whole seconds, or a date. A date is compared with the answer's own Date if
// it has one, so that the two machines' clocks need not agree. It is 0 if there is no valid value.
func (a Answer) RetryAfter(now time.Time) time.Duration {
	v := strings.TrimSpace(a.Header.Get("Retry-After"))
	if d, ok := seconds(v); ok {
		return d
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		now = date
	}
	return bounded(at.Sub(now))
}

// ParseWait parses a wait that an answer names elsewhere: seconds, a time as seconds since 1970, or a date; 0 if it is none.
func ParseWait(v string, now time.Time) time.Duration {
	if d, ok := reset(v, now); ok || v == "" {
		return d
	}
	if at, err := http.ParseTime(v); err == nil {
		return bounded(at.Sub(now))
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0
	}
	return bounded(time.Duration(min(math.Ceil(n), maxRetryAfter.Seconds())) * time.Second)
}

// rateLimit parses a RateLimit header: the longest wait of its limits that are used up. Drafts of it have a list of
// limits with parameters ("burst";r=0;t=30, "day";r=100;t=3600) or the fields of one limit (limit=100, remaining=0,
// reset=30).
func rateLimit(v string) (d time.Duration, ok bool) {
	var left, wait string // of the limit being read
	take := func() {
		if t, valid := seconds(wait); valid && (left == "" || left == "0") {
			d, ok = max(d, t), true
		}
		left, wait = "", ""
	}
	for field := range strings.FieldsFuncSeq(v, func(c rune) bool { return c == ',' || c == ';' }) {
		name, value, found := strings.Cut(strings.TrimSpace(field), "=")
		switch strings.ToLower(name) {
		case "r", "remaining":
			left = value
		case "t", "reset":
			wait = value
		default:
			if !found { // the name of the next limit
				take()
			}
		}
	}
	take()
	return d, ok
}

// epoch divides what a reset may say: seconds to wait below it, and seconds since 1970 from it on.
const epoch = 1_000_000_000

// reset parses the value of a RateLimit-Reset header or of one like it.
func reset(v string, now time.Time) (d time.Duration, ok bool) {
	v = strings.TrimSpace(v)
	if at, err := strconv.ParseInt(v, 10, 64); err == nil && at >= epoch && at < 100*epoch {
		return bounded(time.Unix(at, 0).Sub(now)), true
	}
	return seconds(v)
}

// seconds parses a number of whole seconds.
func seconds(v string) (d time.Duration, ok bool) {
	if v == "" || strings.Trim(v, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n > int64(maxRetryAfter/time.Second) { // a number too large to parse is long enough too
		return maxRetryAfter, true
	}
	return bounded(time.Duration(n) * time.Second), true
}

func bounded(d time.Duration) time.Duration { return min(maxRetryAfter, max(minRetryAfter, d)) }
