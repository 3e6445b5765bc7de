package fcm

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// defaultWait is how long to wait after a refusal for a quota that does not say; the service asks for a minute.
const defaultWait = time.Minute

// Types of the details of an error.
const (
	fcmError     = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
	badRequest   = "type.googleapis.com/google.rpc.BadRequest"
	quotaFailure = "type.googleapis.com/google.rpc.QuotaFailure"
)

// said is the body of an answer.
type said struct {
	Name  string `json:"name"`
	Error *struct {
		Status  string `json:"status"`
		Details []struct {
			Type       string            `json:"@type"`
			ErrorCode  string            `json:"errorCode"`
			Fields     []json.RawMessage `json:"fieldViolations"`
			Violations []struct {
				Subject     string `json:"subject"`
				Description string `json:"description"`
			} `json:"violations"`
		} `json:"details"`
	} `json:"error"`
}

// code returns the service's own code of the error, else the general one; own tells which.
func (s *said) code() (code string, own bool) {
	if s.Error == nil {
		return "", false
	}
	for _, d := range s.Error.Details {
		if d.Type == fcmError && d.ErrorCode != "" {
			return d.ErrorCode, true
		}
	}
	return s.Error.Status, false
}

// aboutFields reports whether an error names fields of the request, all of which are the job's.
func (s *said) aboutFields() bool {
	for _, d := range s.Error.Details {
		if d.Type == badRequest && len(d.Fields) > 0 {
			return true
		}
	}
	return false
}

// aboutRecipient reports whether it is the quota of one device or topic that is used up.
func (s *said) aboutRecipient() bool {
	for _, d := range s.Error.Details {
		if d.Type != quotaFailure {
			continue
		}
		for _, v := range d.Violations {
			text := strings.ToLower(v.Subject + " " + v.Description)
			for _, one := range []string{"device", "topic", "token", "registration"} {
				if strings.Contains(text, one) {
					return true
				}
			}
		}
	}
	return false
}

// classify returns the result for an answer:
//
//	200                                  delivered
//	UNREGISTERED                         rejected
//	INVALID_ARGUMENT, SENDER_ID_MISMATCH permanent; a 400 that names fields, too
//	QUOTA_EXCEEDED, any other 429        throttled, a minute if it does not say; the recipient alone if the quota is his
//	THIRD_PARTY_AUTH_ERROR               misconfigured, for the campaign: the project's key of APNs or of web push
//	503 with Retry-After                 throttled
//	other 5xx                            temporary
//	other, 401, 403, 404 among them      misconfigured: the answer names no code of the service's own
func classify(a sinkhttp.Answer, now time.Time) delivery.Result {
	var body said
	if json.Unmarshal(a.Body, &body) != nil {
		body = said{}
	}
	res := a.ByStatus(now)
	if res.Class == delivery.Delivered && body.Error == nil {
		if body.Name != "" {
			res.Provider = &delivery.Provider{MessageID: body.Name}
		}
		return res
	}
	code, own := body.code()
	switch {
	case own && code == "UNREGISTERED":
		res.Class = delivery.Rejected
	case own && (code == "INVALID_ARGUMENT" || code == "SENDER_ID_MISMATCH"),
		!own && a.Status == http.StatusBadRequest && body.Error != nil && body.aboutFields():
		res.Class = delivery.Permanent
	case own && code == "THIRD_PARTY_AUTH_ERROR":
		res.Class, res.Scope = delivery.Misconfigured, delivery.ScopeCampaign
	case own && code == "QUOTA_EXCEEDED" || a.Status == http.StatusTooManyRequests:
		res.Class, res.By = delivery.Throttled, delivery.ByUnknown
		if res.RetryAfter = a.Wait(now); res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
		if body.Error != nil && body.aboutRecipient() {
			res.Scope = delivery.ScopeRecipient
		}
	case res.Class == delivery.Delivered: // an error with a status of success
		res.Class = delivery.Temporary
	}
	return a.Refusal(res, code)
}
