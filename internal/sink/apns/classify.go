package apns

import (
	"net/http"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// said is the body of an answer.
type said struct {
	Reason    string `json:"reason"`
	Timestamp int64  `json:"timestamp"` // milliseconds; 410 only
}

// codes are the service's reasons. An unreachable one ends the use of its connection.
var codes = httpcall.Codes{Wait: time.Minute, Classes: map[string]delivery.ResultClass{
	"Unregistered": delivery.Rejected, "ExpiredToken": delivery.Rejected, "410": delivery.Rejected,
	"BadDeviceToken": delivery.Permanent, "DeviceTokenNotForTopic": delivery.Permanent, "BadCollapseId": delivery.Permanent,
	"BadExpirationDate": delivery.Permanent, "BadMessageId": delivery.Permanent, "DuplicateHeaders": delivery.Permanent,
	"MissingDeviceToken": delivery.Permanent, "PayloadEmpty": delivery.Permanent, "PayloadTooLarge": delivery.Permanent,
	"IdleTimeout": delivery.Unreachable, "Shutdown": delivery.Unreachable, "TooManyProviderTokenUpdates": delivery.Unreachable,
}}

// settings are the reasons about what the configuration says, or a job where the configuration leaves it to jobs.
var settings = map[string]string{
	"BadTopic": "topic", "MissingTopic": "topic", "TopicDisallowed": "topic", "InvalidPushType": "push_type", "BadPriority": "priority",
}

// retires reports whether an answer ends the use of its connection.
func retires(a httpcall.Answer) bool {
	return a.Status != http.StatusOK && codes.Classes[httpcall.Read[said](a).Reason] == delivery.Unreachable
}

// classify returns the result for an answer; byJob reports whether a setting is a template, so that its value is the job's.
func classify(a httpcall.Answer, byJob func(key string) bool, now time.Time) delivery.Result {
	body := httpcall.Read[said](a)
	res := codes.Judge(a, httpcall.Said{Code: body.Reason, MessageID: a.Header.Get("Apns-Id")}, now)
	switch key, isSetting := settings[body.Reason]; {
	case isSetting && byJob(key):
		res.Class = delivery.Permanent
	case body.Reason == "TooManyRequests":
		res.Scope = delivery.ScopeRecipient
	case body.Reason != "" && res.Class == delivery.Rejected && body.Timestamp > 0:
		res.Provider.GoneSince = time.UnixMilli(body.Timestamp).UTC()
	}
	return res
}
