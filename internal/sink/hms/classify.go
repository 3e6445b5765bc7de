package hms

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// said is the body of an answer.
type said struct {
	Code      string `json:"code"`
	Msg       string `json:"msg"`
	RequestID string `json:"requestId"`
}

const (
	taken            = "80000000"
	noRight          = "80300011" // to send messages of this level
	aboutCredentials = "802"
	unknown          = "other"
	byStatus         = "status" // which counts alone
)

// codes are those of the service, or how they begin.
var codes = httpcall.Codes{Wait: 10 * time.Second, Classes: map[string]delivery.ResultClass{
	taken:      delivery.Delivered,
	"80100000": delivery.Rejected, // some tokens are not valid
	"80300007": delivery.Rejected, // all tokens are not valid
	"80300008": delivery.Permanent,
	"80300010": delivery.Permanent, // too many tokens
	"801":      delivery.Permanent, // about the message
	"80300002": delivery.Misconfigured, noRight: delivery.Misconfigured, aboutCredentials: delivery.Misconfigured,
	unknown: delivery.Temporary,
	"503":   delivery.Throttled, // too much traffic
}}

// read returns what an answer says; of one that was cut off its code, which comes first.
func read(a httpcall.Answer) (s said) {
	if s = httpcall.Read[said](a); s.Code == "" {
		s.Code, _ = a.First("code").(string)
	}
	return s
}

// classify returns the result for an answer. The service says failure with a status of success, too, and always has a code there.
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	body := read(a)
	answer := httpcall.Said{Code: body.Code, Means: byStatus, MessageID: body.RequestID, Foreign: body.Code == ""}
	if a.Status < http.StatusTooManyRequests {
		answer.Means = body.key()
	}
	res := codes.Judge(a, answer, now)
	if answer.Means == noRight {
		res.Scope = delivery.ScopeCampaign
	}
	return res
}

// key returns the one of the codes that an answer means: where tokens were refused, the message says more.
func (s *said) key() string {
	var tokens struct {
		Success json.Number `json:"success"`
	}
	class, known := codes.Classes[s.Code]
	switch {
	case class == delivery.Rejected && strings.Contains(s.Msg, "noPushTypeRight"):
		return noRight
	case class == delivery.Rejected && json.Unmarshal([]byte(s.Msg), &tokens) == nil && tokens.Success == "1": // there was one token
		return taken
	case known || s.Code == "":
		return s.Code
	}
	if begin := s.Code[:min(3, len(s.Code))]; codes.Classes[begin] != delivery.Delivered {
		return begin
	}
	return unknown
}

// refusesToken reports whether an answer is about the token that the request was sent with.
func refusesToken(res *delivery.Result) bool {
	return res.Class == delivery.Misconfigured &&
		(res.Status == http.StatusUnauthorized || res.Provider != nil && strings.HasPrefix(res.Provider.Code, aboutCredentials))
}
