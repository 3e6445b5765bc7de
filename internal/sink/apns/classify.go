package apns

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// defaultWait is how long a job waits whose device gets too many, where the service does not say.
const defaultWait = time.Minute

// said is the body of an answer.
type said struct {
	Reason    string `json:"reason"`
	Timestamp int64  `json:"timestamp"` // milliseconds; 410 only
}

// Reasons, by what they are about.
var (
	gone   = []string{"Unregistered", "ExpiredToken"}
	ofJob  = []string{"BadDeviceToken", "DeviceTokenNotForTopic", "BadCollapseId", "BadExpirationDate", "BadMessageId", "DuplicateHeaders", "MissingDeviceToken", "PayloadEmpty", "PayloadTooLarge"}
	ending = []string{"IdleTimeout", "Shutdown", "TooManyProviderTokenUpdates"} // of the connection
)

// settings are the reasons about what the configuration says, or a job where the configuration leaves it to jobs.
var settings = map[string]string{
	"BadTopic": "topic", "MissingTopic": "topic", "TopicDisallowed": "topic", "InvalidPushType": "push_type", "BadPriority": "priority",
}

func read(a httpcall.Answer) (s said) {
	if json.Unmarshal(a.Body, &s) != nil {
		return said{}
	}
	return s
}

// retires reports whether an answer ends the use of its connection.
func retires(a httpcall.Answer) bool {
	return a.Status != http.StatusOK && slices.Contains(ending, read(a).Reason)
}

// classify returns the result for an answer; byJob reports whether a setting is a template, so that its value is the job's.
//
//	200                                                       delivered
//	410 (Unregistered, ExpiredToken)                          rejected, with the time since when
//	reasons about the token, the payload or the id            permanent
//	reasons about topic, type or priority                     misconfigured; permanent where the job gave it
//	429 TooManyRequests                                       throttled, this recipient
//	IdleTimeout, Shutdown, TooManyProviderTokenUpdates        unreachable: another connection
//	403, and every other 4xx                                  misconfigured
//	5xx                                                       temporary; throttled if 503 says for how long
func classify(a httpcall.Answer, byJob func(key string) bool, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	if res.Class == delivery.Delivered {
		if id := a.Header.Get("Apns-Id"); id != "" {
			res.Provider = &delivery.Provider{MessageID: id}
		}
		return res
	}
	body := read(a)
	key, isSetting := settings[body.Reason]
	switch {
	case slices.Contains(gone, body.Reason) || a.Status == http.StatusGone:
		res.Class = delivery.Rejected
	case slices.Contains(ofJob, body.Reason):
		res.Class = delivery.Permanent
	case isSetting && byJob(key):
		res.Class = delivery.Permanent
	case slices.Contains(ending, body.Reason):
		res.Class, res.By, res.RetryAfter = delivery.Unreachable, delivery.ByUnknown, 0
	case a.Status == http.StatusTooManyRequests:
		res.Class, res.Scope = delivery.Throttled, delivery.ScopeRecipient
		if res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
	}
	res = a.Refusal(res, body.Reason)
	if body.Reason != "" && res.Class == delivery.Rejected && body.Timestamp > 0 {
		res.Provider.GoneSince = time.UnixMilli(body.Timestamp).UTC()
	}
	return res
}
