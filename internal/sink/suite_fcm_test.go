package sink_test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/fcm"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

var fcmPlay = play{
	acts:    []act{takes, rejects, refuses, refusesLate, fails, failsFor7s, throttles, throttlesIt, distrusts, hangs, resets, babbles, trickles, mumbles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*fcm.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*fcm.Config).URL = "https://" + addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		var f *sinktest.FCM
		f = sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, n int) bool {
			switch how := treat(recipient, n); how {
			case rejects:
				f.Fail(c, 404, "NOT_FOUND", "UNREGISTERED")
			case refuses, refusesLate:
				c.Late = lateness[how]
				f.Fail(c, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
			case fails:
				f.Fail(c, 500, "INTERNAL", "INTERNAL")
			case failsFor7s:
				f.Fail(c, 503, "UNAVAILABLE", "UNAVAILABLE", "Retry-After", "7")
			case throttles:
				f.Fail(c, 429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "Retry-After", "90")
			case throttlesIt:
				c.JSON(429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
					{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"QUOTA_EXCEEDED"},
					{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"device:x","description":"Device message rate exceeded"}]}]}}`,
					"Retry-After", "90")
			case distrusts:
				f.Fail(c, 403, "PERMISSION_DENIED", "")
			default:
				return misbehave(c, how, `{"name":"projects/demo/messages/7","a":"`)
			}
			return true
		})
		c := fcm.Default()
		c.URL, c.CAFile, c.KeyFile = f.URL, f.CAFile, f.KeyFile
		return stage{
			config: c, received: f.Received, secrets: []string{"ya29.token"},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{ID: "job of " + recipient, Campaign: "spring", Payload: []byte(`{"token":"` + recipient + `","data":{"a":"b"}}`)}
			},
		}
	},
}
