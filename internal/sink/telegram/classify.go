package telegram

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// defaultWait is how long a job waits whose chat gets too many, where the service does not say.
const defaultWait = 5 * time.Second

// said is the body of an answer.
type said struct {
	OK          *bool           `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter json.Number `json:"retry_after"`
		MigrateTo  json.Number `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// gone are the descriptions of a 400 that are about who gets the message. The service has no other code for them.
var gone = []string{
	"chat not found", "user not found", "PEER_ID_INVALID", "USER_IS_BLOCKED", "INPUT_USER_DEACTIVATED", "group chat was deactivated", "group chat was upgraded",
	"CHAT_WRITE_FORBIDDEN", "CHAT_RESTRICTED", "have no rights to send a message", "not enough rights", "need administrator rights in the channel chat",
	"message thread not found", "TOPIC_CLOSED", "TOPIC_DELETED",
}

// classify returns the result for an answer. The body of an answer of the Bot API counts, not the status:
//
//	ok                                       delivered
//	403; 400 about the chat or the user      rejected; with the new id of a group that has become a supergroup
//	other 400, 413                           permanent
//	429                                      throttled, this recipient
//	401, 404 and other 4xx                   misconfigured: the token, or the method
//	5xx                                      temporary
//
// An answer of something else is that of a proxy: its status counts, but that of success.
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	var body said
	if json.Unmarshal(a.Body, &body) != nil || body.OK == nil {
		return foreign(res, a)
	}
	if *body.OK {
		return delivery.Result{Class: delivery.Delivered, Status: a.Status, Provider: messageOf(body.Result)}
	}
	code := body.Code
	if code == 0 {
		code = a.Status
	}
	res.Class, res.By = delivery.Misconfigured, delivery.ByUnknown
	text := description(body.Description)
	migrated := body.Parameters.MigrateTo.String()
	switch {
	case code == http.StatusForbidden,
		code == http.StatusBadRequest && (migrated != "" || slices.ContainsFunc(gone, func(g string) bool { return strings.Contains(text, g) })):
		res.Class = delivery.Rejected
	case code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge:
		res.Class = delivery.Permanent
	case code == http.StatusTooManyRequests:
		res.Class, res.Scope = delivery.Throttled, delivery.ScopeRecipient
		if seconds, err := body.Parameters.RetryAfter.Int64(); err == nil && seconds > 0 {
			res.RetryAfter = time.Duration(min(seconds, int64(longest/time.Second))) * time.Second
		} else if res.RetryAfter == 0 {
			res.RetryAfter = defaultWait
		}
	case code >= http.StatusInternalServerError:
		res.Class, res.By = delivery.Temporary, delivery.ByDestination
	case code >= 200 && code < 300: // it says that it did not, and not why
		res.Class, res.By = delivery.Temporary, delivery.ByDestination
	}
	res.Detail = strings.TrimSpace("code " + strconv.Itoa(code) + " " + text)
	if text == "" {
		text = strconv.Itoa(code)
	}
	if migrated != "" {
		text = "migrate_to_chat_id " + migrated
	}
	res.Provider = &delivery.Provider{Code: text}
	return res
}

// longest is the longest wait that is told; how long it is believed is a setting.
const longest = 24 * time.Hour

// foreign returns the result for an answer that is not one of the Bot API, or the beginning of one.
func foreign(res delivery.Result, a httpcall.Answer) delivery.Result {
	res.Detail = "HTTP " + strconv.Itoa(a.Status) + ", and no answer of the Bot API,"
	switch {
	case res.Class == delivery.Delivered && a.First("ok") == true: // cut off: the service says that first
		res.Detail = ""
	case res.Class == delivery.Delivered:
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
	case a.Status == http.StatusRequestEntityTooLarge:
		res.Class = delivery.Permanent
	}
	return res
}

// messageOf returns the id of the message that was sent: the first of several.
func messageOf(result json.RawMessage) *delivery.Provider {
	type message struct {
		ID json.Number `json:"message_id"`
	}
	var one message
	if json.Unmarshal(result, &one) != nil {
		var several []message
		if json.Unmarshal(result, &several) != nil || len(several) == 0 {
			return nil
		}
		one = several[0]
	}
	if one.ID == "" {
		return nil
	}
	return &delivery.Provider{MessageID: one.ID.String()}
}

// description returns what the service says of an error, without what it quotes of the request.
func description(s string) string {
	if i := strings.IndexAny(s, "\"\n"); i >= 0 {
		s = s[:i]
	}
	s, _, _ = strings.Cut(s, " '")
	s, _, _ = strings.Cut(s, ": retry after")
	for _, prefix := range []string{"Bad Request: ", "Forbidden: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.TrimRight(s, " :")
}
