package sink_test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/steps"
)

// stepsPlay is a request of one step, which has to do what a request of an http sink does.
var stepsPlay = play{
	setting: "steps.0.url: cannot connect: ",
	acts:    []act{takes, rejects, refuses, fails, failsFor7s, throttles, throttlesIt, distrusts, hangs, resets, babbles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*steps.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*steps.Config).Steps[0].URL = "https://" + addr + "/new" },
	start: func(t *testing.T, treat func(string, int) act) stage {
		g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, _, key string, n int) bool {
			switch how := treat(key, n); how {
			case rejects:
				c.JSON(400, `{"code":"GONE"}`)
			case refuses:
				c.Answer(422)
			case fails:
				c.Answer(500)
			case failsFor7s:
				c.Answer(500, "Retry-After", "7")
			case throttles:
				c.Answer(429, "Retry-After", "90")
			case throttlesIt:
				c.Begin(429, "Retry-After", "90")
				_ = c.Body([]byte(`{"code":"RATE"}`))
				c.End()
			case distrusts:
				c.Answer(401)
			case takes:
				return false
			default:
				return misbehave(c, how)
			}
			return true
		})
		c := steps.Default()
		c.CAFile, c.Bearer = g.CAFile, "t0p-s3cret"
		c.Steps = []steps.Step{{
			ID: "new", URL: g.URL + "/new?key={{ .ID }}",
			Rules: map[string]string{"rejected": `body?.code == "GONE"`, "throttled recipient": `body?.code == "RATE"`},
		}}
		return stage{
			config: c, received: func(name string) int { return g.Calls("new", name) }, secrets: []string{"t0p-s3cret"},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{ID: recipient, Campaign: "spring", Payload: []byte(`{"a":"hello"}`)}
			},
		}
	},
}
