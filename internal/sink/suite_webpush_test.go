package sink_test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/webpush"
)

var webpushPlay = play{
	nowhere: true,
	acts:    []act{takes, rejects, refuses, fails, failsFor7s, throttlesThere, distrustsThere, hangs, resets, babbles, trickles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*webpush.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*webpush.Config).Proxy = "http://" + addr }, // endpoints come from jobs
	start: func(t *testing.T, treat func(string, int) act) stage {
		w := sinktest.StartWebPush(t, func(c *sinktest.Call, recipient string, n int) bool {
			switch how := treat(recipient, n); how {
			case rejects:
				c.Answer(410)
			case refuses:
				c.Answer(413)
			case fails:
				c.Answer(500)
			case failsFor7s:
				c.Answer(502, "Retry-After", "7")
			case throttlesThere:
				c.Answer(429, "Retry-After", "90")
			case distrustsThere:
				c.JSON(403, `{"reason":"BadJwtToken"}`)
			default:
				return misbehave(c, how)
			}
			return true
		})
		c := webpush.Default()
		c.CAFile, c.Key, c.Subject = w.CAFile, w.Key, "mailto:ops@example.com"
		c.Guard.Ports, c.Guard.Allow = []int{w.Port}, []string{"127.0.0.1"}
		return stage{
			config: c, received: w.Received, secrets: []string{w.Key, "eyJ", "/push/", `\/push\/`},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{
					ID: "job of " + recipient, Campaign: "spring", Payload: []byte("hello " + recipient),
					Meta: delivery.Meta{Headers: []delivery.Header{{Key: "subscription", Value: []byte(w.Subscription(recipient))}}},
				}
			},
		}
	},
}
