package telegram

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

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

// codes are those of the service, which are statuses. It is throttled for five seconds, where it does not say.
var codes = httpcall.Codes{Wait: 5 * time.Second, Classes: map[string]delivery.ResultClass{
	"400": delivery.Permanent, "403": delivery.Rejected, "413": delivery.Permanent, aboutChat: delivery.Rejected,
}}

const aboutChat = "gone"

// classify returns the result for an answer. The code in an answer of the Bot API counts, not the status: it is about one chat if it is 429.
// An answer of something else is that of a proxy: its status counts, but that of success.
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	body := httpcall.Read[said](a)
	if body.OK == nil {
		return foreign(a, now)
	}
	if *body.OK {
		return delivery.Result{Class: delivery.Delivered, Status: a.Status, Provider: &delivery.Provider{MessageID: messageOf(body.Result)}}
	}
	own := a
	own.Status = cmp.Or(body.Code, a.Status)
	code, answer := strconv.Itoa(own.Status), httpcall.Said{}
	text, migrated := description(body.Description), body.Parameters.MigrateTo.String()
	if own.Status == http.StatusBadRequest && (migrated != "" || slices.ContainsFunc(gone, func(g string) bool { return strings.Contains(text, g) })) {
		answer.Means = aboutChat
	}
	res := codes.Judge(own, answer, now)
	switch {
	case res.Class == delivery.Delivered: // it says that it did not, and not why
		res.Class, res.By = delivery.Temporary, delivery.ByDestination
	case own.Status == http.StatusTooManyRequests:
		res.Scope = delivery.ScopeRecipient
		res.RetryAfter = cmp.Or(httpcall.ParseWait(body.Parameters.RetryAfter.String(), now), res.RetryAfter)
	}
	res.Status, res.Detail = a.Status, strings.TrimSpace("code "+code+" "+text)
	if migrated != "" {
		text = "migrate_to_chat_id " + migrated
	}
	res.Provider = &delivery.Provider{Code: cmp.Or(text, code)}
	return res
}

// foreign returns the result for an answer that is not one of the Bot API, or the beginning of one.
func foreign(a httpcall.Answer, now time.Time) delivery.Result {
	res := a.ByStatus(now)
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

// messageOf returns the id of the message that was sent, the first of several; "" for none.
func messageOf(result json.RawMessage) string {
	type message struct {
		ID json.Number `json:"message_id"`
	}
	var one message
	var several []message
	if json.Unmarshal(result, &one) != nil && json.Unmarshal(result, &several) == nil && len(several) > 0 {
		one = several[0]
	}
	return one.ID.String()
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
