package sink_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/telegram"
)

var telegramPlay = play{
	acts:    []act{takes, rejects, refuses, fails, throttlesIt, distrusts, hangs, resets, babbles, trickles, mumbles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*telegram.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*telegram.Config).URL = "https://" + addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		var g *sinktest.Telegram
		g = sinktest.StartTelegram(t, func(c *sinktest.Call, chat string, n int) bool {
			switch how := treat(chat, n); how {
			case rejects:
				g.Fail(c, 403, "Forbidden: bot was blocked by the user", "")
			case refuses:
				g.Fail(c, 400, "Bad Request: can't parse entities: Unsupported start tag \"hello\" at byte offset 0", "")
			case fails:
				g.Fail(c, 500, "Internal Server Error", "")
			case throttlesIt:
				g.Fail(c, 429, "Too Many Requests: retry after 90", `{"retry_after":90}`)
			case distrusts:
				g.Fail(c, 401, "Unauthorized", "")
			default:
				return misbehave(c, how, `{"ok":true,"result":{"message_id":7,`)
			}
			return true
		})
		c := telegram.Default()
		c.URL, c.CAFile, c.Token = g.URL, g.CAFile, g.Token
		return stage{
			config: c, received: g.Received, secrets: []string{g.Token, strings.SplitN(g.Token, ":", 2)[1]},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{ID: "job of " + recipient, Campaign: "spring", Payload: []byte(`{"chat_id":"` + recipient + `","text":"hello"}`)}
			},
		}
	},
}
