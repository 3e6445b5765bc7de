package webpush

import (
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// defaultWait is how long jobs to an endpoint's origin wait after a refusal for too much that does not say.
const defaultWait = 10 * time.Second

// said is the body of a refusal: RFC 8030 says nothing of it, and each service has its own.
type said struct {
	Reason string `json:"reason"` // Apple
	Number int    `json:"errno"`  // Mozilla
}

// classify returns the result for an answer:
//
//	2xx                           delivered
//	404, 410                      rejected: the subscription is gone
//	429, 406, 503 that says when  throttled, this origin (406 is how the Windows service says it)
//	BadJwtToken, ExpiredJwtToken  misconfigured, this origin: it does not accept the token
//	other 5xx, 408                temporary
//	other 401 and 403             permanent: the subscription was made with another key
//	other, 400 and 413 of them    permanent: the message, or an endpoint that is none; redirects are not followed
//
// A push service checks the key against each subscription (RFC 8292, 4.2), and some services do not say more than 401 or 403. A single answer
// does not tell a stale subscription from a wrong key. The pacer can: where a key is wrong, all messages to the origin are refused, and
// 50 refusals in a row hold the origin. Where only some subscriptions are stale, the others are not delayed.
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	res, code := a.ByStatus(now), codeOf(a.Body)
	switch {
	case res.Class == delivery.Delivered:
		if id := messageID(a.Header); id != "" {
			res.Provider = &delivery.Provider{MessageID: id}
		}
		return res
	case a.Status == http.StatusNotFound || a.Status == http.StatusGone:
		res.Class = delivery.Rejected
	case res.Class == delivery.Throttled || a.Status == http.StatusNotAcceptable:
		res.Class, res.Scope, res.RetryAfter = delivery.Throttled, delivery.ScopeDestination, a.Wait(now)
		if res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
	case strings.HasSuffix(code, "JwtToken"):
		res.Class, res.Scope = delivery.Misconfigured, delivery.ScopeDestination
	case res.Class == delivery.Misconfigured:
		res.Class = delivery.Permanent
	}
	return a.Refusal(res, code)
}

// messageID returns the id that the service gave the message: Apple says it; elsewhere it is the end of the message's own address.
func messageID(h http.Header) string {
	id := h.Get("Apns-Id")
	if location := h.Get("Location"); id == "" && location != "" {
		id = path.Base(location)
	}
	if len(id) > delivery.MaxProviderText || id == "." || id == "/" {
		return ""
	}
	return id
}

// codeOf returns the code in a body, "" if it has none that is known to be one.
func codeOf(body []byte) string {
	var s said
	if json.Unmarshal(body, &s) != nil {
		return ""
	}
	if s.Reason != "" && len(s.Reason) <= 64 && strings.Trim(s.Reason, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return s.Reason
	}
	if s.Number > 0 {
		return "errno " + strconv.Itoa(s.Number)
	}
	return ""
}
