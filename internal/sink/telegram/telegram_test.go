package telegram

import (
	"fmt"
	"log/slog"
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
		res := s.Deliver(t.Context(), job(fmt.Sprintf(`{"chat_id":"slow%d","text":"x"}`, n/2)), nil)
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
	sinktest.Deliver(t, s, job(`{"chat_id":"fast","text":"x"}`), delivery.Delivered)
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
			var shown base.Exchange
			res := s.Deliver(t.Context(), job(`{"chat_id":1,"text":"x"}`), &shown)
			request, answer := shown.Request, shown.Answer
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
