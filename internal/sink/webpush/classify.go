package webpush

import (
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// codes are the statuses of RFC 8030 about a subscription, and how the Windows service says that it gets too much.
var codes = httpcall.Codes{Wait: 10 * time.Second, Classes: map[string]delivery.ResultClass{
	"404": delivery.Rejected, "410": delivery.Rejected, "406": delivery.Throttled,
}}

// said is the body of a refusal: RFC 8030 says nothing of it, and each service has its own.
type said struct {
	Reason string `json:"reason"` // Apple
	Number int    `json:"errno"`  // Mozilla
}

// classify returns the result for an answer. One that refuses is permanent: redirects are not followed, and a push service checks the key
// against each subscription (RFC 8292, 4.2). Some services do not say more than 401 or 403. A single answer does not tell a stale
// subscription from a wrong key. The pacer can: where a key is wrong, all messages to the origin are refused, and 50 refusals in a row hold
// the origin. Where only some subscriptions are stale, the others are not delayed. A service that does not accept the token says so.
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	code := httpcall.Read[said](a).code()
	res := codes.Judge(a, httpcall.Said{Code: code, MessageID: messageID(a.Header)}, now)
	switch {
	case res.Class == delivery.Throttled || strings.HasSuffix(code, "JwtToken"):
		res.Scope = delivery.ScopeDestination
	case res.Class == delivery.Misconfigured:
		res.Class = delivery.Permanent
	}
	return res
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

// code returns the code in a body, "" if it has none that is known to be one.
func (s said) code() string {
	if s.Reason != "" && len(s.Reason) <= 64 && strings.Trim(s.Reason, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return s.Reason
	}
	if s.Number > 0 {
		return "errno " + strconv.Itoa(s.Number)
	}
	return ""
}
