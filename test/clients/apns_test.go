package clients

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/payload"
	"github.com/sideshow/apns2/token"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestAPNs: a client of APNs that many use sends to the stand-in, many notifications at once over one connection, and
// understands its reasons.
func TestAPNs(t *testing.T) {
	t.Parallel()
	since := time.Unix(1_700_000_000, 0)
	var a *sinktest.APNs
	a = sinktest.StartAPNs(t, func(c *sinktest.Call, device string, _ int) bool {
		switch device {
		case "aa":
			a.Gone(c, since)
		case "bb":
			a.Fail(c, 400, apns2.ReasonBadDeviceToken)
		case "cc":
			a.Fail(c, 429, apns2.ReasonTooManyRequests)
		default:
			return false
		}
		return true
	})
	client := apnsClient(t, a, "TEAM1")
	push := func(device string) *apns2.Response {
		res, err := client.Push(&apns2.Notification{
			DeviceToken: device, Topic: "com.example.app", PushType: apns2.PushTypeAlert, Priority: apns2.PriorityHigh, CollapseID: "c",
			ApnsID: "123e4567-e89b-12d3-a456-42665544000a", Expiration: time.Now().Add(time.Hour), Payload: payload.NewPayload().Alert("hi").Badge(1),
		})
		if err != nil {
			t.Error(err)
			return &apns2.Response{}
		}
		return res
	}
	if res := push("01"); !res.Sent() || res.ApnsID != "123e4567-e89b-12d3-a456-42665544000a" {
		t.Errorf("%+v", res)
	}
	for device, want := range map[string]apns2.Response{
		"aa": {StatusCode: 410, Reason: apns2.ReasonUnregistered, Timestamp: apns2.Time{Time: since}},
		"bb": {StatusCode: 400, Reason: apns2.ReasonBadDeviceToken}, "cc": {StatusCode: 429, Reason: apns2.ReasonTooManyRequests},
		"xyz": {StatusCode: 400, Reason: apns2.ReasonBadDeviceToken},
	} {
		if res := push(device); res.StatusCode != want.StatusCode || res.Reason != want.Reason || !res.Timestamp.Equal(want.Timestamp.Time) {
			t.Errorf("%s: %+v", device, res)
		}
	}
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			if res := push(fmt.Sprintf("%04x", i+256)); !res.Sent() {
				t.Errorf("%+v", res)
			}
		})
	}
	calls.Wait()
	if a.Connections() != 1 || a.Excess() != 0 || a.Tokens() != 1 {
		t.Errorf("%d connections, %d requests beyond the limit, %d tokens", a.Connections(), a.Excess(), a.Tokens())
	}
	client = apnsClient(t, a, "TEAM2")
	if res := push("01"); res.Reason != apns2.ReasonInvalidProviderToken {
		t.Errorf("another team: %+v", res)
	}
}

func apnsClient(t *testing.T, a *sinktest.APNs, team string) *apns2.Client {
	t.Helper()
	key, err := token.AuthKeyFromFile(a.KeyFile)
	noError(t, err)
	client := apns2.NewTokenClient(&token.Token{AuthKey: key, KeyID: "KEY1", TeamID: team})
	client.Host, client.HTTPClient = a.URL, &http.Client{Transport: trusting(t, a.CAFile)}
	return client
}
