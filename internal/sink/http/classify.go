package http

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Bounds on what a Retry-After header may ask for. The lower one is the header's own granularity: a destination that
// answers 429 with "Retry-After: 0" must not be sent job after job, since such answers use up no attempt.
const (
	minRetryAfter     = time.Second
	maxRetryAfter     = 24 * time.Hour
	defaultRetryAfter = time.Second // of a 429 without a usable Retry-After
)

// classify says what an answer means:
//
//	2xx                     delivered
//	429                     throttled, for as long as Retry-After says
//	503 with Retry-After    throttled
//	408, 425, 5xx           temporary
//	3xx                     permanent: following would re-send the payload, maybe to another party, and not as a POST
//	other                   permanent
func (s *Sink) classify(resp *http.Response, now time.Time) delivery.Result {
	code := resp.StatusCode
	res := delivery.Result{Status: code}
	switch {
	case code >= 200 && code < 300:
		res.Class = delivery.Delivered
		return res
	case code == http.StatusTooManyRequests:
		res.Class, res.RetryAfter = delivery.Throttled, defaultRetryAfter
		if d, ok := retryAfter(resp.Header, now); ok {
			res.RetryAfter = d
		}
	case code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooEarly:
		res.Class = delivery.Temporary
		if code == http.StatusServiceUnavailable {
			if d, ok := retryAfter(resp.Header, now); ok {
				res.Class, res.RetryAfter = delivery.Throttled, d
			}
		}
	default:
		res.Class = delivery.Permanent
	}
	res.Detail = s.statusDetail(resp)
	return res
}

// statusDetail describes an answer by its status alone: the body may repeat the payload or a credential.
func (s *Sink) statusDetail(resp *http.Response) string {
	code := resp.StatusCode
	detail := "HTTP " + strconv.Itoa(code)
	if text := http.StatusText(code); text != "" {
		detail += " " + text
	}
	detail += " from " + s.where
	if code >= 300 && code < 400 {
		detail += ": redirects are not followed"
		if to, err := resp.Location(); err == nil {
			detail += "; set the sink's url to where it moved: " + Redacted(to.String())
		}
	}
	return s.scrub(detail)
}

// unreachable is the result of a request without an answer. The request may have arrived all the same.
func (s *Sink) unreachable(err error, timedOut bool) delivery.Result {
	var detail string
	var op *net.OpError
	switch {
	case timedOut || errors.Is(err, context.DeadlineExceeded):
		detail = "no answer from " + s.where + " within " + s.timeout.String()
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		detail = s.where + " closed the connection before it answered"
	case errors.As(err, &op):
		detail = op.Error()
	default:
		detail = s.where + ": " + err.Error()
	}
	return delivery.Result{Class: delivery.Unreachable, Detail: s.scrub(detail)}
}

// scrub takes every configured secret out of a detail. Errors of net/http are not known to hold any; a destination's
// Location may.
func (s *Sink) scrub(detail string) string {
	for _, secret := range s.secrets {
		if secret != "" {
			detail = strings.ReplaceAll(detail, secret, "***")
		}
	}
	return detail
}

// retryAfter reads a Retry-After header: whole seconds, or a date, which is taken against the answer's own Date where
// it has one, so that the two machines' clocks need not agree. ok is false when there is none that can be read.
func retryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if digits(v) {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) { // more digits than fit is long enough too
			return maxRetryAfter, true
		}
		return max(minRetryAfter, time.Duration(seconds)*time.Second), true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(maxRetryAfter, max(minRetryAfter, at.Sub(now))), true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
