package fcm

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// defaultWait is how long to wait after a refusal for a quota that does not say; the service asks for a minute.
const defaultWait = time.Minute

// Types of the details of an error.
const (
	fcmError     = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
	quotaFailure = "type.googleapis.com/google.rpc.QuotaFailure"
)

// said is the body of an answer.
type said struct {
	Name  string `json:"name"`
	Error *struct {
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
		return ""
	}
	for _, d := range s.Error.Details {
		if d.Type == fcmError && d.ErrorCode != "" {
			return d.ErrorCode
		}
	}
	return s.Error.Status
}

// ofJob are the codes about a message or its token. Only some tokens need the project's key of APNs or of web push. The service says
// INVALID_ARGUMENT and NOT_FOUND without more for single messages too, and a single answer does not tell these from wrong settings. The
// pacer can: 50 refusals in a row hold the campaign.
var ofJob = []string{"INVALID_ARGUMENT", "SENDER_ID_MISMATCH", "THIRD_PARTY_AUTH_ERROR", "NOT_FOUND"}

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
//	200                             delivered
//	UNREGISTERED                    rejected
//	codes about the job (ofJob)     permanent
//	QUOTA_EXCEEDED, any other 429   throttled, a minute if it does not say; the recipient alone if the quota is his
//	503 with Retry-After            throttled
//	other 5xx                       temporary
//	other, 401 and 403 among them   misconfigured; a 404 that is not the service's own, too
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	var body said
	if json.Unmarshal(a.Body, &body) != nil {
		body = said{}
	}
	res := a.ByStatus(now)
	if res.Class == delivery.Delivered && body.Error == nil && !a.Foreign() {
		if body.Name != "" {
			res.Provider = &delivery.Provider{MessageID: body.Name}
		}
		return res
	}
	code := body.code()
	switch {
	case code == "UNREGISTERED":
		res.Class = delivery.Rejected
	case slices.Contains(ofJob, code):
		res.Class = delivery.Permanent
	case code == "QUOTA_EXCEEDED" || a.Status == http.StatusTooManyRequests:
		res.Class, res.By = delivery.Throttled, delivery.ByUnknown
		if res.RetryAfter = a.Wait(now); res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
		if body.Error != nil && body.aboutRecipient() {
			res.Scope = delivery.ScopeRecipient
		}
	case res.Class == delivery.Delivered: // an error with a status of success, or a proxy's page
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
	}
	return a.Refusal(res, code)
}
