package fcm

import (
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Types of the details of an error.
const (
	fcmError     = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
	quotaFailure = "type.googleapis.com/google.rpc.QuotaFailure"
)

// said is the body of an answer.
type said struct {
	Name   string `json:"name"`
	Status string `json:"status"` // of an error, by services like it
	Error  *struct {
		Status  string `json:"status"`
		Details []struct {
			Type       string `json:"@type"`
			ErrorCode  string `json:"errorCode"`
			Violations []struct {
				Subject     string `json:"subject"`
				Description string `json:"description"`
			} `json:"violations"`
		} `json:"details"`
	} `json:"error"`
}

// code returns the service's own code of the error, else the general one, which is not one of its own.
func (s *said) code() string {
	if s.Error == nil {
		return s.Status
	}
	for _, d := range s.Error.Details {
		if d.Type == fcmError && d.ErrorCode != "" {
			return d.ErrorCode
		}
	}
	return s.Error.Status
}

// codes are those of the service. It is throttled for a minute, as it asks for. Only some tokens need the project's key of APNs or of web
// push. The service says INVALID_ARGUMENT and NOT_FOUND without more for single messages too, and a single answer does not tell these from
// wrong settings. The pacer can: 50 refusals in a row hold the campaign.
var codes = httpcall.Codes{Wait: time.Minute, Classes: map[string]delivery.ResultClass{
	"UNREGISTERED":     delivery.Rejected,
	"INVALID_ARGUMENT": delivery.Permanent, "SENDER_ID_MISMATCH": delivery.Permanent, "THIRD_PARTY_AUTH_ERROR": delivery.Permanent, "NOT_FOUND": delivery.Permanent,
	"QUOTA_EXCEEDED": delivery.Throttled,
}}

// aboutRecipient reports whether it is the quota of one device or topic that is used up.
func (s *said) aboutRecipient() bool {
	if s.Error == nil {
		return false
	}
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

// classify returns the result for an answer by the codes of the service. One with a status of success may be an error.
func classify(a httpcall.Answer, codes *httpcall.Codes, now time.Time) delivery.Result {
	body := httpcall.Read[said](a)
	res := codes.Judge(a, httpcall.Said{Code: body.code(), MessageID: body.Name, Foreign: body.Error != nil || a.Foreign()}, now)
	if res.Class == delivery.Throttled && body.aboutRecipient() {
		res.Scope = delivery.ScopeRecipient
	}
	return res
}
