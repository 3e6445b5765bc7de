package sink_test

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

// said is an answer of a service over HTTP, and what it means.
type said struct {
	status int
	after  string // of the header Retry-After
	body   string
	want   delivery.ResultClass
	scope  delivery.Scope
	wait   time.Duration
	code   string // that the service gave its error, or the id that it gave the message
}

// says is the act of a stand-in that answers so.
func says(s said) act { return act(fmt.Sprintf("%d|%s|%s", s.status, s.after, s.body)) }

// TestAnswers: what each answer means. Nothing of an answer is told as why, but the codes of services.
func TestAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		kind    string
		change  func(sink.Config)
		answers []said
	}{
		"apns":              {"apns", nil, answersOfAPNs},
		"apns, set by jobs": {"apns", set("Topic", "{{ .Campaign }}", "PushType", `{{ print "alert" }}`), answersAboutJobsOfAPNs},
		"fcm":               {"fcm", nil, answersOfFCM},
		"hms":               {"hms, secret", nil, answersOfHMS},
		"rustore":           {"rustore", nil, answersOfRuStore},
		"telegram":          {"telegram", nil, answersOfTelegram},
		"webpush":           {"webpush", nil, answersOfWebPush},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := plays[tt.kind].start(t, func(recipient string, _ int) act {
				n, _ := strconv.Atoi(recipient)
				return says(tt.answers[n])
			})
			if tt.change != nil {
				tt.change(s.config)
			}
			r := s.open(t)
			for i, a := range tt.answers {
				res := r.Deliver(t.Context(), "a", s.job(strconv.Itoa(i)))
				p := cmp.Or(res.Provider, &delivery.Provider{})
				if res.Class != a.want || res.Scope != a.scope || res.RetryAfter != a.wait || res.Status != a.status || p.Code+p.MessageID != a.code ||
					(res.Detail == "") != (res.Class == delivery.Delivered) || strings.Contains(res.Detail+p.Code, "hunter22") {
					t.Errorf("%d %s: %+v %+v", a.status, a.body, res, p)
				}
				if gone := res.Class == delivery.Rejected && strings.Contains(a.body, "timestamp"); p.GoneSince.IsZero() == gone {
					t.Errorf("%d %s: gone since %s", a.status, a.body, p.GoneSince)
				}
			}
		})
	}
}

// reason is the body of an answer of APNs.
func reason(s string) string {
	return fmt.Sprintf(`{"reason":%q,"timestamp":1600000000000}`, s)
}

var answersOfAPNs = []said{
	{status: 200, want: delivery.Delivered},
	{status: 410, body: reason("Unregistered"), want: delivery.Rejected, code: "Unregistered"},
	{status: 410, body: reason("ExpiredToken"), want: delivery.Rejected, code: "ExpiredToken"},
	{status: 410, want: delivery.Rejected},
	{status: 400, body: reason("BadDeviceToken"), want: delivery.Permanent, code: "BadDeviceToken"},
	{status: 400, body: reason("DeviceTokenNotForTopic"), want: delivery.Permanent, code: "DeviceTokenNotForTopic"},
	{status: 413, body: reason("PayloadTooLarge"), want: delivery.Permanent, code: "PayloadTooLarge"},
	{status: 400, body: reason("BadCollapseId"), want: delivery.Permanent, code: "BadCollapseId"},
	{status: 400, body: reason("BadTopic"), want: delivery.Misconfigured, code: "BadTopic"},
	{status: 400, body: reason("TopicDisallowed"), want: delivery.Misconfigured, code: "TopicDisallowed"},
	{status: 403, body: reason("ExpiredProviderToken"), want: delivery.Misconfigured, code: "ExpiredProviderToken"},
	{status: 403, body: reason("BadCertificateEnvironment"), want: delivery.Misconfigured, code: "BadCertificateEnvironment"},
	{status: 404, body: reason("BadPath"), want: delivery.Misconfigured, code: "BadPath"},
	{status: 405, body: reason("MethodNotAllowed"), want: delivery.Misconfigured, code: "MethodNotAllowed"},
	{status: 429, body: reason("TooManyRequests"), want: delivery.Throttled, scope: delivery.ScopeRecipient, wait: time.Minute, code: "TooManyRequests"},
	{status: 429, body: reason("TooManyProviderTokenUpdates"), want: delivery.Unreachable, code: "TooManyProviderTokenUpdates"},
	{status: 400, body: reason("IdleTimeout"), want: delivery.Unreachable, code: "IdleTimeout"},
	{status: 503, body: reason("Shutdown"), want: delivery.Unreachable, code: "Shutdown"},
	{status: 503, body: reason("ServiceUnavailable"), want: delivery.Temporary, code: "ServiceUnavailable"},
	{status: 500, body: reason("InternalServerError"), want: delivery.Temporary, code: "InternalServerError"},
	{status: 418, want: delivery.Misconfigured},
}

var answersAboutJobsOfAPNs = []said{
	{status: 400, body: reason("BadTopic"), want: delivery.Permanent, code: "BadTopic"},
	{status: 400, body: reason("InvalidPushType"), want: delivery.Permanent, code: "InvalidPushType"},
	{status: 400, body: reason("BadPriority"), want: delivery.Misconfigured, code: "BadPriority"},
	{status: 403, body: reason("InvalidProviderToken"), want: delivery.Misconfigured, code: "InvalidProviderToken"},
}

// firebase is the body of an answer of FCM with a code of its own, and usedUp that with a quota.
func firebase(code string) string {
	return `{"error":{"status":"S","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + code + `"}]}}`
}

func usedUp(subject string) string {
	return `{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"` + subject + `"}]}]}}`
}

const badField = `{"error":{"status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.x"}]}]}}`

var answersOfFCM = []said{
	{status: 200, body: `{"name":"projects/p/messages/1"}`, want: delivery.Delivered, code: "projects/p/messages/1"},
	{status: 200, want: delivery.Delivered},
	{status: 200, body: `<html>`, want: delivery.Temporary},
	{status: 200, body: firebase("INTERNAL"), want: delivery.Temporary, code: "INTERNAL"},
	{status: 404, body: firebase("UNREGISTERED"), want: delivery.Rejected, code: "UNREGISTERED"},
	{status: 404, body: `{"error":{"status":"NOT_FOUND"}}`, want: delivery.Permanent, code: "NOT_FOUND"},
	{status: 404, body: `<html>`, want: delivery.Misconfigured},
	{status: 400, body: firebase("INVALID_ARGUMENT"), want: delivery.Permanent, code: "INVALID_ARGUMENT"},
	{status: 400, body: badField, want: delivery.Permanent, code: "INVALID_ARGUMENT"},
	{status: 400, body: `<html>`, want: delivery.Misconfigured},
	{status: 403, body: firebase("SENDER_ID_MISMATCH"), want: delivery.Permanent, code: "SENDER_ID_MISMATCH"},
	{status: 403, body: `{"error":{"status":"PERMISSION_DENIED"}}`, want: delivery.Misconfigured, code: "PERMISSION_DENIED"},
	{status: 401, body: firebase("THIRD_PARTY_AUTH_ERROR"), want: delivery.Permanent, code: "THIRD_PARTY_AUTH_ERROR"},
	{status: 401, body: `{"error":{"status":"UNAUTHENTICATED"}}`, want: delivery.Misconfigured, code: "UNAUTHENTICATED"},
	{status: 429, body: firebase("QUOTA_EXCEEDED"), want: delivery.Throttled, wait: time.Minute, code: "QUOTA_EXCEEDED"},
	{status: 429, after: "30", body: firebase("QUOTA_EXCEEDED"), want: delivery.Throttled, wait: 30 * time.Second, code: "QUOTA_EXCEEDED"},
	{status: 429, body: usedUp("device:x"), want: delivery.Throttled, scope: delivery.ScopeRecipient, wait: time.Minute, code: "RESOURCE_EXHAUSTED"},
	{status: 429, body: usedUp("project:x"), want: delivery.Throttled, wait: time.Minute, code: "RESOURCE_EXHAUSTED"},
	{status: 429, want: delivery.Throttled, wait: time.Minute},
	{status: 500, body: firebase("INTERNAL"), want: delivery.Temporary, code: "INTERNAL"},
	{status: 503, body: firebase("UNAVAILABLE"), want: delivery.Temporary, code: "UNAVAILABLE"},
	{status: 503, after: "20", body: firebase("UNAVAILABLE"), want: delivery.Throttled, wait: 20 * time.Second, code: "UNAVAILABLE"},
	{status: 502, body: `<html>`, want: delivery.Temporary},
	{status: 302, want: delivery.Misconfigured},
	{status: 413, want: delivery.Misconfigured},
}

// pushKit is the body of an answer of HMS.
func pushKit(code, msg string) string {
	return `{"code":"` + code + `","msg":"` + msg + `","requestId":"r"}`
}

var answersOfHMS = []said{
	{status: 200, body: pushKit("80000000", "Success"), want: delivery.Delivered, code: "r"},
	{status: 200, body: `{"code":"80000000","msg":"Su`, want: delivery.Delivered}, // cut off
	{status: 200, want: delivery.Temporary},
	{status: 200, body: `{"ok":true}`, want: delivery.Temporary},
	{status: 200, body: pushKit("80300007", "all"), want: delivery.Rejected, code: "80300007"},
	{
		status: 200, body: pushKit("80300007", `{\"failure\":1,\"illegalTokens\":{\"noPushTypeRight\":[\"x\"]}}`),
		want: delivery.Misconfigured, scope: delivery.ScopeCampaign, code: "80300007",
	},
	{status: 200, body: pushKit("80100000", `{\"success\":0,\"failure\":1}`), want: delivery.Rejected, code: "80100000"}, // the only token
	{status: 200, body: pushKit("80100000", `{\"success\":1,\"failure\":0}`), want: delivery.Delivered, code: "r"},
	{status: 400, body: pushKit("80100003", "hunter22"), want: delivery.Permanent, code: "80100003"},
	{status: 200, body: pushKit("80100016", "sensitive"), want: delivery.Permanent, code: "80100016"},
	{status: 400, body: pushKit("80300008", "size"), want: delivery.Permanent, code: "80300008"},
	{status: 200, body: pushKit("80300002", "of another app"), want: delivery.Misconfigured, code: "80300002"},
	{status: 200, body: pushKit("80300011", "level"), want: delivery.Misconfigured, scope: delivery.ScopeCampaign, code: "80300011"},
	{status: 200, body: pushKit("81000001", "internal"), want: delivery.Temporary, code: "81000001"},
	{status: 200, body: pushKit("80600003", "server of tokens"), want: delivery.Temporary, code: "80600003"},
	{status: 200, body: pushKit("89999999", "new"), want: delivery.Temporary, code: "89999999"},
	{status: 400, body: `<html>`, want: delivery.Misconfigured},
	{status: 404, want: delivery.Misconfigured},
	{status: 500, body: pushKit("80000000", "Success"), want: delivery.Temporary, code: "80000000"},
	{status: 502, body: `<html>`, want: delivery.Temporary},
	{status: 503, want: delivery.Throttled, wait: 10 * time.Second},
	{status: 429, want: delivery.Throttled, wait: 10 * time.Second},
}

var answersOfRuStore = []said{
	{status: 200, body: `{}`, want: delivery.Delivered},
	{status: 200, body: "\ufeff{}", want: delivery.Delivered}, // a mark of the order of bytes, as some servers write it
	{status: 200, want: delivery.Delivered},
	{status: 200, body: `{"error":{"status":"INTERNAL"}}`, want: delivery.Temporary, code: "INTERNAL"},
	{status: 400, body: `{"error":{"code":400,"status":"INVALID_ARGUMENT"}}`, want: delivery.Permanent, code: "INVALID_ARGUMENT"},
	{status: 400, body: `<html>`, want: delivery.Misconfigured},
	{status: 401, body: `{"code":401,"status":"UNAUTHENTICATED"}`, want: delivery.Misconfigured, code: "UNAUTHENTICATED"},
	{status: 404, body: `{"code":404,"status":"NOT_FOUND"}`, want: delivery.Rejected, code: "NOT_FOUND"},
	{status: 404, body: `{"error":{"code":404,"status":"UNREGISTERED"}}`, want: delivery.Rejected, code: "UNREGISTERED"},
	{status: 404, body: `<html>`, want: delivery.Misconfigured},
	{status: 410, want: delivery.Rejected},
	{status: 413, want: delivery.Permanent},
	{status: 429, body: `{"error":{"status":"TOO_MANY_REQUESTS"}}`, want: delivery.Throttled, code: "TOO_MANY_REQUESTS"},
	{status: 502, body: `<html>`, want: delivery.Temporary},
}

// noBot is the body of an answer of the Bot API that refuses.
func noBot(code int, description, more string) string {
	return fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q%s}`, code, description, more)
}

var answersOfTelegram = []said{
	{status: 200, body: `{"ok":true,"result":{"message_id":7}}`, want: delivery.Delivered, code: "7"},
	{status: 200, body: `{"ok":true,"result":[{"message_id":8},{"message_id":9}]}`, want: delivery.Delivered, code: "8"},
	{status: 200, body: `{"ok":true,"result":true}`, want: delivery.Delivered},
	{status: 200, body: `{"ok":true,"result":{"message_id":7,"te`, want: delivery.Delivered}, // cut off
	{status: 200, body: `{"result":{"ok":true`, want: delivery.Temporary},
	{status: 200, body: `{}`, want: delivery.Temporary},
	{status: 200, want: delivery.Temporary},
	{status: 200, body: noBot(403, "Forbidden: bot was kicked from the supergroup chat", ""), want: delivery.Rejected, code: "bot was kicked from the supergroup chat"},
	{status: 200, body: `{"ok":false}`, want: delivery.Temporary, code: "200"},
	{status: 403, body: noBot(403, "Forbidden: user is deactivated", ""), want: delivery.Rejected, code: "user is deactivated"},
	{status: 403, body: noBot(403, "Forbidden: something new", ""), want: delivery.Rejected, code: "something new"},
	{status: 403, body: `<html>`, want: delivery.Misconfigured},
	{status: 400, body: noBot(400, "Bad Request: chat not found", ""), want: delivery.Rejected, code: "chat not found"},
	{status: 400, body: noBot(400, "Bad Request: not enough rights to send text messages", ""), want: delivery.Rejected, code: "not enough rights to send text messages"},
	{
		status: 400, body: noBot(400, "Bad Request: group chat was upgraded to a supergroup chat", `,"parameters":{"migrate_to_chat_id":-1001234567890}`),
		want: delivery.Rejected, code: "migrate_to_chat_id -1001234567890",
	},
	{status: 400, body: noBot(400, "Bad Request: message is too long", ""), want: delivery.Permanent, code: "message is too long"},
	{
		status: 400, body: noBot(400, `Bad Request: can't parse entities: Unsupported start tag "hunter22" at byte offset 5`, ""),
		want: delivery.Permanent, code: "can't parse entities: Unsupported start tag",
	},
	{
		status: 400, body: noBot(400, `Bad Request: inline keyboard button URL 'hunter22' is invalid`, ""),
		want: delivery.Permanent, code: "inline keyboard button URL",
	},
	{status: 413, body: noBot(413, "Request Entity Too Large", ""), want: delivery.Permanent, code: "Request Entity Too Large"},
	{status: 413, body: `<html>`, want: delivery.Permanent},
	{status: 401, body: noBot(401, "Unauthorized", ""), want: delivery.Misconfigured, code: "Unauthorized"},
	{status: 404, body: noBot(404, "Not Found", ""), want: delivery.Misconfigured, code: "Not Found"},
	{status: 404, body: `<html>`, want: delivery.Misconfigured},
	{status: 409, body: noBot(409, "Conflict: terminated", ""), want: delivery.Misconfigured, code: "Conflict: terminated"},
	{
		status: 429, body: noBot(429, "Too Many Requests: retry after 99999999999", `,"parameters":{"retry_after":99999999999}`),
		want: delivery.Throttled, scope: delivery.ScopeRecipient, wait: 24 * time.Hour, code: "Too Many Requests",
	},
	{status: 429, body: noBot(429, "", ""), want: delivery.Throttled, scope: delivery.ScopeRecipient, wait: 5 * time.Second, code: "429"},
	{status: 429, body: `<html>`, want: delivery.Throttled}, // of what stands before the service
	{status: 500, body: noBot(500, "Internal Server Error: restart", ""), want: delivery.Temporary, code: "Internal Server Error: restart"},
	{status: 502, body: `<html>`, want: delivery.Temporary},
	{status: 302, want: delivery.Misconfigured},
}

var answersOfWebPush = []said{
	{status: 201, want: delivery.Delivered},
	{status: 202, want: delivery.Delivered},
	{status: 404, body: `{"errno":102}`, want: delivery.Rejected, code: "errno 102"},
	{status: 410, body: `{"reason":"Unregistered"}`, want: delivery.Rejected, code: "Unregistered"},
	{status: 400, body: `{"reason":"hunter22 !"}`, want: delivery.Permanent},
	{status: 413, want: delivery.Permanent},
	{status: 405, want: delivery.Permanent},
	{status: 307, want: delivery.Permanent},
	{status: 429, after: "30", want: delivery.Throttled, scope: delivery.ScopeDestination, wait: 30 * time.Second},
	{status: 429, want: delivery.Throttled, scope: delivery.ScopeDestination, wait: 10 * time.Second},
	{status: 406, want: delivery.Throttled, scope: delivery.ScopeDestination, wait: 10 * time.Second},
	{status: 503, after: "20", want: delivery.Throttled, scope: delivery.ScopeDestination, wait: 20 * time.Second},
	{status: 503, want: delivery.Temporary},
	{status: 500, after: "7", want: delivery.Temporary, wait: 7 * time.Second},
	{status: 401, body: `{"code":401,"errno":109,"message":"VAPID public key mismatch"}`, want: delivery.Permanent, code: "errno 109"},
	{status: 403, body: "the VAPID credentials do not correspond to the credentials used to create the subscriptions.\n", want: delivery.Permanent},
	{status: 403, body: `{"reason":"VapidPkHashMismatch"}`, want: delivery.Permanent, code: "VapidPkHashMismatch"},
	{status: 403, body: `{"reason":"ExpiredJwtToken"}`, want: delivery.Misconfigured, scope: delivery.ScopeDestination, code: "ExpiredJwtToken"},
	{status: 403, body: `{"reason":"BadJwtToken"}`, want: delivery.Misconfigured, scope: delivery.ScopeDestination, code: "BadJwtToken"},
}

// TestPayloads: what a service cannot take is refused before it is sent, and nothing of it is told.
func TestPayloads(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for kind, payloads := range map[string][]string{
		"fcm": {
			"", "hunter22", "[]", "null", `{"message":null}`, `{"message":"hunter22"}`, `{"message":{"token":"a"},"x":1}`, `{"token":"` + long + `"}`,
		},
		"hms": {
			``, `hunter22`, `null`, `{}`, `{"target":{"token":"hunter22"}}`, `{"target":{"token":[]}}`, `{"target":{"token":["a","hunter22"]}}`,
			`{"target":{"token":["a"]},"message":{"token":["hunter22"]}}`, `{"target":{"token":["a"]},"x":"` + long + `"}`,
		},
		"smev":        {``, `hunter22`, `{"a":1}`, `<hunter22/>`},
		"smev direct": {``, `hunter22`, `{"a":1}`, `<hunter22/>`},
		"telegram": {
			`{"text":"hunter22"}`, `{"chat_id":""}`, `{"chat_id":["hunter22"]}`, `null`, `hunter22`, ``, `[]`, `{"chat_id":1,"text":"` + long + `"}`,
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := plays[kind].start(t, func(string, int) act { t.Error("something was sent"); return takes })
			r := s.open(t)
			for _, payload := range payloads {
				res := r.Deliver(t.Context(), "a", jobOf("", payload))
				if res.Class != delivery.Permanent || res.Status != 0 || res.Detail == "" || strings.Contains(res.Detail, "hunter22") {
					t.Errorf("%.40s: %+v", payload, res)
				}
			}
		})
	}
}
