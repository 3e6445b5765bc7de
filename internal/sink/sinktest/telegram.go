package sinktest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Telegram stands in for the Bot API. It speaks HTTP/2 over TLS. It refuses requests that the service would refuse, counts the
// others by chat, and treats them as it is told.
type Telegram struct {
	*Server
	Token string // of the bot

	received counter
}

var botPath = regexp.MustCompile(`^/bot([^/]+)/([a-zA-Z]+)$`)

// StartTelegram starts a stand-in that calls treat for each message that is in order, the n-th for its chat: it answers, or
// returns false for the usual answer.
func StartTelegram(t testing.TB, treat func(c *Call, chat string, n int) (treated bool)) *Telegram {
	t.Helper()
	g := &Telegram{Token: "4839574812:" + strings.Repeat("k", 35)}
	g.Server = Start(t, HTTP2, Options{}, func(c *Call) { g.take(c, treat) })
	g.URL = strings.TrimSuffix(g.URL, "/deliver")
	return g
}

// Fail answers as the service does with an error. The parameters are JSON, "" for none.
func (g *Telegram) Fail(c *Call, code int, description, parameters string) {
	if parameters != "" {
		parameters = `,"parameters":` + parameters
	}
	c.JSON(code, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q%s}`, code, description, parameters))
}

// Received returns how many messages for a chat were read to their end.
func (g *Telegram) Received(chat string) int { return g.received.of(chat) }

// message is what a method gets, as far as it is looked at.
type message struct {
	ChatID any `json:"chat_id"`
	Text   string
}

// ChatOf returns which chat a request is for.
func ChatOf(c *Call) string {
	var m message
	_ = json.Unmarshal(c.Payload, &m) // what is not JSON is for none
	return fmt.Sprint(m.ChatID)
}

func (g *Telegram) take(c *Call, treat func(c *Call, chat string, n int) bool) {
	path := botPath.FindStringSubmatch(c.Path)
	switch {
	case path == nil || !strings.Contains(path[1], ":"):
		g.Fail(c, 404, "Not Found", "")
		return
	case path[1] != g.Token:
		g.Fail(c, 401, "Unauthorized", "")
		return
	case path[2] == "getMe":
		c.JSON(200, `{"ok":true,"result":{"id":4839574812,"is_bot":true,"first_name":"Pacer","username":"pacer_bot"}}`)
		return
	case !strings.HasPrefix(path[2], "send"):
		g.Fail(c, 404, "Not Found", "")
		return
	}
	var m message
	switch {
	case !strings.HasPrefix(c.Header.Get("Content-Type"), "application/json") || json.Unmarshal(c.Payload, &m) != nil:
		g.Fail(c, 400, "Bad Request: can't parse JSON object", "")
		return
	case m.ChatID == nil || m.ChatID == "":
		g.Fail(c, 400, "Bad Request: chat_id is empty", "")
		return
	case path[2] == "sendMessage" && m.Text == "":
		g.Fail(c, 400, "Bad Request: message text is empty", "")
		return
	}
	chat := fmt.Sprint(m.ChatID)
	n := g.received.add(chat)
	if treat == nil || !treat(c, chat, n) {
		c.JSON(200, fmt.Sprintf(`{"ok":true,"result":{"message_id":%d,"date":1700000000,"chat":{"id":1,"type":"private"},"text":"x"}}`, 40+n))
	}
}
