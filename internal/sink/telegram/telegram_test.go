package telegram

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, g *sinktest.Telegram, change func(*Config)) *httpcall.Sink[parts] {
	t.Helper()
	cfg := Default()
	cfg.URL, cfg.CAFile, cfg.Token = g.URL, g.CAFile, g.Token
	if change != nil {
		change(cfg)
	}
	s, err := New(cfg, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job(payload string) *delivery.Job {
	return &delivery.Job{ID: "1", Campaign: "c", Payload: []byte(payload)}
}

func TestClassify(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	no := func(code int, description, more string) string {
		return fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q%s}`, code, description, more)
	}
	for _, tt := range []struct {
		status int
		body   string
		want   delivery.ResultClass
		scope  delivery.Scope
		wait   time.Duration
		code   string
	}{
		{200, `{"ok":true,"result":{"message_id":7}}`, delivery.Delivered, 0, 0, "7"},
		{200, `{"ok":true,"result":[{"message_id":8},{"message_id":9}]}`, delivery.Delivered, 0, 0, "8"},
		{200, `{"ok":true,"result":true}`, delivery.Delivered, 0, 0, ""},
		{200, `{"ok":true,"result":{"message_id":7,"te`, delivery.Delivered, 0, 0, ""}, // cut off
		{200, `{"result":{"ok":true`, delivery.Temporary, 0, 0, ""},
		{200, `{}`, delivery.Temporary, 0, 0, ""},
		{200, ``, delivery.Temporary, 0, 0, ""},
		{200, no(403, "Forbidden: bot was kicked from the supergroup chat", ""), delivery.Rejected, 0, 0, "bot was kicked from the supergroup chat"},
		{200, `{"ok":false}`, delivery.Temporary, 0, 0, "200"},
		{403, no(403, "Forbidden: user is deactivated", ""), delivery.Rejected, 0, 0, "user is deactivated"},
		{403, no(403, "Forbidden: something new", ""), delivery.Rejected, 0, 0, "something new"},
		{403, `<html>`, delivery.Misconfigured, 0, 0, ""},
		{400, no(400, "Bad Request: chat not found", ""), delivery.Rejected, 0, 0, "chat not found"},
		{400, no(400, "Bad Request: not enough rights to send text messages to the chat", ""), delivery.Rejected, 0, 0, "not enough rights to send text messages to the chat"},
		{400, no(400, "Bad Request: group chat was upgraded to a supergroup chat", `,"parameters":{"migrate_to_chat_id":-1001234567890}`), delivery.Rejected, 0, 0, "migrate_to_chat_id -1001234567890"},
		{400, no(400, "Bad Request: message is too long", ""), delivery.Permanent, 0, 0, "message is too long"},
		{400, no(400, `Bad Request: can't parse entities: Unsupported start tag "hunter22" at byte offset 5`, ""), delivery.Permanent, 0, 0, "can't parse entities: Unsupported start tag"},
		{400, no(400, `Bad Request: inline keyboard button URL 'hunter22' is invalid`, ""), delivery.Permanent, 0, 0, "inline keyboard button URL"},
		{413, no(413, "Request Entity Too Large", ""), delivery.Permanent, 0, 0, "Request Entity Too Large"},
		{413, `<html>`, delivery.Permanent, 0, 0, ""},
		{401, no(401, "Unauthorized", ""), delivery.Misconfigured, 0, 0, "Unauthorized"},
		{404, no(404, "Not Found", ""), delivery.Misconfigured, 0, 0, "Not Found"},
		{404, `<html>`, delivery.Misconfigured, 0, 0, ""},
		{409, no(409, "Conflict: terminated", ""), delivery.Misconfigured, 0, 0, "Conflict: terminated"},
		{429, no(429, "Too Many Requests: retry after 14", `,"parameters":{"retry_after":14}`), delivery.Throttled, delivery.ScopeRecipient, 14 * time.Second, "Too Many Requests"},
		{429, no(429, "Too Many Requests: retry after 99999999999", `,"parameters":{"retry_after":99999999999}`), delivery.Throttled, delivery.ScopeRecipient, 24 * time.Hour, "Too Many Requests"},
		{429, no(429, "", ""), delivery.Throttled, delivery.ScopeRecipient, 5 * time.Second, "429"},
		{429, `<html>`, delivery.Throttled, 0, 0, ""}, // of what stands before the service
		{500, no(500, "Internal Server Error: restart", ""), delivery.Temporary, 0, 0, "Internal Server Error: restart"},
		{502, `<html>`, delivery.Temporary, 0, 0, ""},
		{302, ``, delivery.Misconfigured, 0, 0, ""},
	} {
		res := classify(httpcall.Answer{Status: tt.status, Header: http.Header{}, Body: []byte(tt.body), Whole: true}, now)
		code := ""
		if res.Provider != nil {
			code = res.Provider.Code + res.Provider.MessageID
		}
		if res.Class != tt.want || res.Scope != tt.scope || res.RetryAfter != tt.wait || code != tt.code || res.Status != tt.status ||
			(res.Detail == "") != (res.Class == delivery.Delivered) || strings.Contains(res.Detail, "hunter22") {
			t.Errorf("%d %s: %+v, code %q", tt.status, tt.body, res, code)
		}
	}
}

func TestChatOf(t *testing.T) {
	for payload, want := range map[string]string{
		`{"chat_id":5,"text":"x"}`: "5", `{"chat_id":"@news"}`: "@news", `{"chat_id":-1001234567890123456789}`: "-1001234567890123456789",
		`{"text":"hunter22"}`: "", `{"chat_id":""}`: "", `{"chat_id":["hunter22"]}`: "", `null`: "", `hunter22`: "", ``: "", `[]`: "",
		`{"chat_id":1,"text":"` + strings.Repeat("x", maxPayload) + `"}`: "",
	} {
		chat, err := chatOf([]byte(payload))
		if chat != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%.40s: %q, %v", payload, chat, err)
		}
	}
}

// TestBotIsThrottled: one chat that gets too many waits alone; when it is several at once, everybody does.
func TestBotIsThrottled(t *testing.T) {
	t.Parallel()
	var g *sinktest.Telegram
	g = sinktest.StartTelegram(t, func(c *sinktest.Call, chat string, _ int) bool {
		if strings.HasPrefix(chat, "slow") {
			g.Fail(c, 429, "Too Many Requests: retry after 14", `{"retry_after":14}`)
		}
		return strings.HasPrefix(chat, "slow")
	})
	s := open(t, g, nil)
	ofSink := 0
	for n := range 100 { // on a machine that takes more than a second for three, the next three count
		res := s.Deliver(t.Context(), job(fmt.Sprintf(`{"chat_id":"slow%d","text":"x"}`, n/2)))
		if res.Class != delivery.Throttled || res.RetryAfter != 14*time.Second || n < 2 && res.Scope != delivery.ScopeRecipient {
			t.Errorf("%+v", res)
		}
		if res.Scope == delivery.ScopeSink {
			ofSink++
		}
	}
	if ofSink == 0 {
		t.Error("no answer was about the bot")
	}
	if res := s.Deliver(t.Context(), job(`{"chat_id":"fast","text":"x"}`)); res.Class != delivery.Delivered || res.Provider.MessageID != "41" {
		t.Errorf("%+v", res)
	}
}

// TestTokenIsNotShown, which is a part of the path: wherever something goes wrong.
func TestTokenIsNotShown(t *testing.T) {
	t.Parallel()
	echo := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(c *sinktest.Call) {
		c.JSON(302+c.N*98, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q}`, 302+c.N*98, c.Path), "Location", c.Path)
	})
	g := &sinktest.Telegram{Server: echo, Token: "1234567:opensesame-opensesame"}
	for name, change := range map[string]func(*Config){
		"echo":        func(c *Config) { c.URL = strings.TrimSuffix(c.URL, "/deliver") },
		"unreachable": func(c *Config) { c.URL = "https://127.0.0.1:1" },
		"no TLS":      func(c *Config) { c.URL = strings.Replace(c.URL, "https", "http", 1) },
		"distrusted":  func(c *Config) { c.CAFile = "" },
	} {
		s := open(t, g, change)
		for range 3 {
			res, request, answer := s.Try(t.Context(), job(`{"chat_id":1,"text":"x"}`))
			err := s.Check(t.Context())
			text := fmt.Sprint(res, res.Provider, request, answer, err)
			if strings.Contains(text, "opensesame") || res.Class == delivery.Delivered || err == nil {
				t.Errorf("%s: %s", name, text)
			}
			if !strings.Contains(request, "/bot***/sendMessage\n") {
				t.Errorf("%s: the request is shown as %q", name, request)
			}
		}
	}
}

// TestCheck asks who the bot is, and names the setting.
func TestCheck(t *testing.T) {
	t.Parallel()
	g := sinktest.StartTelegram(t, func(*sinktest.Call, string, int) bool { t.Error("a check has sent something"); return false })
	sinktest.Checks(t, func(change func(*Config)) *httpcall.Sink[parts] { return open(t, g, change) }, map[string]func(*Config){
		"":                       func(*Config) {},
		"token: code 401 Unauth": func(c *Config) { c.Token = "1:aaaaaaaaaaaaa" },
	})
}

func TestProblems(t *testing.T) {
	good := func() *Config {
		c := Default()
		c.Token = "1:opensesame-1"
		return c
	}
	sinktest.Problems(t, good, map[string]func(*Config){
		"url: must begin":      func(c *Config) { c.URL = "ftp://x" },
		"url: has a user":      func(c *Config) { c.URL = "https://a:b@x" },
		"token: required":      func(c *Config) { c.Token = "" },
		"token: not the token": func(c *Config) { c.Token = "hunter22" },
		"method: not a method": func(c *Config) { c.Method = "send/../x" },
	})
}

func TestFlood(t *testing.T) {
	begun := time.Unix(1_700_000_000, 0)
	type refused struct {
		chat string
		at   time.Duration
		want bool
	}
	for name, steps := range map[string][]refused{
		"one chat, however often":    {{"a", 0, false}, {"a", 1, false}, {"a", 2, false}, {"a", 3, false}},
		"two chats, in turn":         {{"a", 0, false}, {"b", 1, false}, {"a", 2, false}, {"b", 3, false}},
		"three at once":              {{"a", 0, false}, {"b", 0, false}, {"c", 0, true}},
		"three within the second":    {{"a", 0, false}, {"b", 500 * time.Millisecond, false}, {"c", time.Second, true}},
		"three, too far apart":       {{"a", 0, false}, {"b", 500 * time.Millisecond, false}, {"c", time.Second + 1, false}},
		"and the next ones":          {{"a", 0, false}, {"b", 1, false}, {"c", 2, true}, {"d", 3, true}, {"a", 4, true}, {"b", time.Hour, false}},
		"a chat counts at its last":  {{"a", 0, false}, {"b", 900 * time.Millisecond, false}, {"a", time.Second, false}, {"c", 1800 * time.Millisecond, true}},
		"a busy chat among the slow": {{"a", 0, false}, {"b", 2 * time.Second, false}, {"b", 3 * time.Second, false}, {"c", 3 * time.Second, false}, {"a", 5 * time.Second, false}},
	} {
		f := floodWait{}
		for i, s := range steps {
			if got := f.refused(s.chat, begun.Add(s.at)); got != s.want {
				t.Errorf("%s: step %d: %t", name, i+1, got)
			}
		}
	}
}
