package sink_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/apns"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

var apnsPlay = play{
	acts:    []act{takes, rejects, refuses, refusesLate, fails, failsFor7s, throttlesIt, distrusts, hangs, resets, babbles, trickles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*apns.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*apns.Config).URL = "https://" + addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		var a *sinktest.APNs
		name := func(device string) string { b, _ := hex.DecodeString(device); return string(b) }
		a = sinktest.StartAPNs(t, func(c *sinktest.Call, device string, n int) bool {
			switch how := treat(name(device), n); how {
			case rejects:
				a.Gone(c, time.Unix(1_700_000_000, 0))
			case refuses, refusesLate:
				c.Late = lateness[how]
				a.Fail(c, 400, "BadDeviceToken")
			case fails:
				a.Fail(c, 500, "InternalServerError")
			case failsFor7s:
				a.Fail(c, 503, "ServiceUnavailable", "Retry-After", "7")
			case throttlesIt:
				a.Fail(c, 429, "TooManyRequests", "Retry-After", "90")
			case distrusts:
				a.Fail(c, 403, "InvalidProviderToken")
			default:
				return misbehave(c, how)
			}
			return true
		})
		c := apns.Default()
		c.URL, c.CAFile, c.AuthKeyFile, c.KeyID, c.TeamID, c.Topic = a.URL, a.CAFile, a.KeyFile, "KEY1", "TEAM1", "com.example.app"
		return stage{
			config: c, received: func(recipient string) int { return a.Received(hex.EncodeToString([]byte(recipient))) }, secrets: []string{"eyJ"},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{
					ID: "job of " + recipient, Campaign: "spring", Payload: []byte(`{"aps":{"alert":"` + recipient + `"}}`),
					Meta: delivery.Meta{Headers: []delivery.Header{{Key: "device-token", Value: []byte(hex.EncodeToString([]byte(recipient)))}}},
				}
			},
		}
	},
}
