package hms

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// defaultWait is how long everybody waits after a refusal for too much traffic, which does not say.
const defaultWait = 10 * time.Second

// said is the body of an answer.
type said struct {
	Code      string `json:"code"`
	Msg       string `json:"msg"`
	RequestID string `json:"requestId"`
}

// Codes of the service.
const (
	codeTaken        = "80000000"
	codePartly       = "80100000" // some tokens are not valid
	codeInvalid      = "80300007" // all tokens are not valid
	codeNoPermission = "80300002"
	codeTooBig       = "80300008"
	codeTooMany      = "80300010" // tokens
	codeNoRight      = "80300011" // to send messages of this level
	codeNoAuth       = "80600003" // the server of tokens did not answer the service
	codeInternal     = "81000001"

	aboutMessage     = "801" // begins the codes that are about the message
	aboutCredentials = "802"
)

// read returns what an answer says; of one that was cut off its code, which comes first.
func read(a sinkhttp.Answer) (s said) {
	if json.Unmarshal(a.Body, &s) == nil {
		return s
	}
	d := json.NewDecoder(bytes.NewReader(a.Body))
	for _, want := range []json.Token{json.Delim('{'), "code"} {
		if t, err := d.Token(); err != nil || t != want {
			return said{}
		}
	}
	code, _ := d.Token()
	s = said{}
	s.Code, _ = code.(string)
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
func classify(a sinkhttp.Answer, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	body := read(a)
	switch {
	case a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests:
		res.Class, res.By = delivery.Throttled, delivery.ByUnknown
		if res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
	case body.Code != "" && a.Status < http.StatusInternalServerError:
		res.Class, res.Scope = body.meaning()
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
func (s *said) meaning() (delivery.ResultClass, delivery.Scope) {
	switch s.Code {
	case codeTaken:
		return delivery.Delivered, delivery.ScopeSink
	case codePartly, codeInvalid:
		var tokens struct {
			Success json.Number `json:"success"`
		}
		switch {
		case strings.Contains(s.Msg, "noPushTypeRight"):
			return delivery.Misconfigured, delivery.ScopeCampaign
		case json.Unmarshal([]byte(s.Msg), &tokens) == nil && tokens.Success == "1": // there was one token
			return delivery.Delivered, delivery.ScopeSink
		}
		return delivery.Rejected, delivery.ScopeSink
	case codeTooBig, codeTooMany:
		return delivery.Permanent, delivery.ScopeSink
	case codeNoPermission:
		return delivery.Misconfigured, delivery.ScopeSink
	case codeNoRight:
		return delivery.Misconfigured, delivery.ScopeCampaign
	case codeNoAuth, codeInternal:
		return delivery.Temporary, delivery.ScopeSink
	}
	switch {
	case strings.HasPrefix(s.Code, aboutMessage):
		return delivery.Permanent, delivery.ScopeSink
	case strings.HasPrefix(s.Code, aboutCredentials):
		return delivery.Misconfigured, delivery.ScopeSink
	}
	return delivery.Temporary, delivery.ScopeSink
}

// refusesToken reports whether an answer is about the token that the request was sent with.
func refusesToken(res *delivery.Result) bool {
	return res.Class == delivery.Misconfigured &&
		(res.Status == http.StatusUnauthorized || res.Provider != nil && strings.HasPrefix(res.Provider.Code, aboutCredentials))
}
