package hms

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// defaultWait is how long everybody waits after a refusal for too much traffic, which does not say.
const defaultWait = 10 * time.Second

// said is the body of an answer.
type said struct {
	Code      string `json:"code"`
	Msg       string `json:"msg"`
	RequestID string `json:"requestId"`
}

const (
	aboutMessage     = "801" // begins the codes that are about the message
	aboutCredentials = "802"
)

// meaning is what a code says.
type meaning struct {
	class delivery.ResultClass
	scope delivery.Scope
}

// codes are those of the service that are not told by their beginning.
var codes = map[string]meaning{
	"80000000": {class: delivery.Delivered},
	"80100000": {class: delivery.Rejected}, // some tokens are not valid
	"80300007": {class: delivery.Rejected}, // all tokens are not valid
	"80300008": {class: delivery.Permanent},
	"80300010": {class: delivery.Permanent}, // too many tokens
	"80300002": {class: delivery.Misconfigured},
	"80300011": {delivery.Misconfigured, delivery.ScopeCampaign}, // no right to send messages of this level
}

// read returns what an answer says; of one that was cut off its code, which comes first.
func read(a httpcall.Answer) (s said) {
	if json.Unmarshal(a.Body, &s) == nil {
		return s
	}
	s = said{}
	s.Code, _ = a.First("code").(string)
	return s
}

// classify returns the result for an answer. Its code counts before its status: the service says failure with 200, too.
//
//	80000000                              delivered
//	80300007, 80100000                    rejected: the token is not valid; misconfigured, for the campaign, where it lacks a right
//	other 801…, 80300008, 80300010        permanent: the message
//	802…, 80300002; 401, 404, other 4xx   misconfigured
//	80300011                              misconfigured, for the campaign: a right to send such messages
//	503, 429                              throttled
//	other codes, 5xx                      temporary
//	2xx without a code                    temporary: that is not the service
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	body := read(a)
	switch {
	case a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests:
		res.Class, res.By = delivery.Throttled, delivery.ByUnknown
		if res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
	case body.Code != "" && a.Status < http.StatusInternalServerError:
		m := body.meaning()
		res.Class, res.Scope = m.class, m.scope
	case res.Class == delivery.Delivered:
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
	}
	if res.Class == delivery.Delivered {
		if body.RequestID != "" {
			res.Provider = &delivery.Provider{MessageID: body.RequestID}
		}
		return res
	}
	return a.Refusal(res, body.Code)
}

// meaning returns what the code says.
func (s *said) meaning() meaning {
	m, known := codes[s.Code]
	var tokens struct {
		Success json.Number `json:"success"`
	}
	switch {
	case m.class == delivery.Rejected && known && strings.Contains(s.Msg, "noPushTypeRight"):
		return meaning{delivery.Misconfigured, delivery.ScopeCampaign}
	case m.class == delivery.Rejected && known && json.Unmarshal([]byte(s.Msg), &tokens) == nil && tokens.Success == "1": // there was one token
		return meaning{class: delivery.Delivered}
	case known:
		return m
	case strings.HasPrefix(s.Code, aboutMessage):
		return meaning{class: delivery.Permanent}
	case strings.HasPrefix(s.Code, aboutCredentials):
		return meaning{class: delivery.Misconfigured}
	}
	return meaning{class: delivery.Temporary}
}

// refusesToken reports whether an answer is about the token that the request was sent with.
func refusesToken(res *delivery.Result) bool {
	return res.Class == delivery.Misconfigured &&
		(res.Status == http.StatusUnauthorized || res.Provider != nil && strings.HasPrefix(res.Provider.Code, aboutCredentials))
}
