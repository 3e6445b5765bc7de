package clients

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	webpush "github.com/SherClockHolmes/webpush-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
	sinkwebpush "github.com/pacer/pacer/internal/sink/webpush"
)

// TestWebPush: a push service and user agent decrypt what another sender encrypts, and take the token that it signs; and get the same
// from the sink, whose encryption shares no code with either. Altered messages, and those with other keys or senders, are rejected.
func TestWebPush(t *testing.T) {
	t.Parallel()
	w, other := sinktest.StartWebPush(t, nil), sinktest.StartWebPush(t, nil)
	client := &http.Client{Transport: trusting(t, w.CAFile)}
	subscription := func(of *sinktest.WebPush, recipient string) (s webpush.Subscription) {
		noError(t, json.Unmarshal([]byte(of.Subscription(recipient)), &s))
		return s
	}
	send := func(message string, s webpush.Subscription, change func(*webpush.Options)) int {
		t.Helper()
		o := &webpush.Options{
			HTTPClient: client, Subscriber: "ops@example.com", TTL: 60, Topic: "news", Urgency: webpush.UrgencyHigh,
			VAPIDPublicKey: w.Public, VAPIDPrivateKey: w.Key,
		}
		if change != nil {
			change(o)
		}
		resp, err := webpush.SendNotificationWithContext(t.Context(), []byte(message), &s, o)
		noError(t, err)
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	long := strings.Repeat("x", 3993) // all that fits
	deliver := sinkDelivers(t, w)
	for _, message := range []string{"h", `{"title":"Zoë"}`, "zeros at the end\x00\x00", long} {
		for _, size := range []uint32{0, uint32(len(message)) + 200} { // padded to the size of a record, or a little
			if got := send(message, subscription(w, "theirs"), func(o *webpush.Options) { o.RecordSize = min(size, 4096) }); got != http.StatusCreated {
				t.Errorf("%.20q: their message is answered with %d", message, got)
			}
		}
		res := deliver(&delivery.Job{
			ID: "a", Campaign: "c", Payload: []byte(message),
			Meta: delivery.Meta{Headers: []delivery.Header{{Key: "subscription", Value: []byte(w.Subscription("ours"))}}},
		})
		if res.Class != delivery.Delivered {
			t.Errorf("%.20q: %+v", message, res)
		}
		var theirs, ours []string
		for _, p := range w.Got() {
			if text := p.Message + " " + p.TTL + p.Urgency + p.Topic; p.Recipient == "ours" {
				ours = append(ours, text)
			} else {
				theirs = append(theirs, text)
			}
		}
		if want := message + " 60highnews"; theirs[len(theirs)-1] != want || theirs[len(theirs)-2] != want || ours[len(ours)-1] != want {
			t.Errorf("got %.40q of theirs and %.40q of ours, want %.40q", theirs[len(theirs)-1], ours[len(ours)-1], want)
		}
	}
	before := len(w.Got())
	others := subscription(w, "x")
	others.Keys = subscription(other, "x").Keys
	swapped := subscription(w, "x")
	swapped.Keys.Auth = others.Keys.Auth
	for name, status := range map[string]int{
		"keys of another":   send("a", others, nil),
		"secret of another": send("a", swapped, nil),
	} {
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
	}
	if got := send("a", subscription(w, "x"), func(o *webpush.Options) { o.VAPIDPublicKey, o.VAPIDPrivateKey = other.Public, other.Key }); got != http.StatusForbidden {
		t.Errorf("another sender: %d", got)
	}
	if got := send("a", subscription(w, "x"), func(o *webpush.Options) { o.VAPIDPrivateKey = other.Key }); got != http.StatusForbidden {
		t.Errorf("a token signed by another: %d", got)
	}
	if after := w.Got(); len(after) != before || !slices.ContainsFunc(after, func(p sinktest.Pushed) bool { return p.Message == long }) {
		t.Errorf("%d messages, %d before", len(after), before)
	}
}

// sinkDelivers opens a webpush sink for the subscriptions of a push service.
func sinkDelivers(t *testing.T, w *sinktest.WebPush) func(*delivery.Job) delivery.Result {
	t.Helper()
	c := sinkwebpush.Default()
	c.CAFile, c.Key, c.Subject = w.CAFile, w.Key, "mailto:ops@example.com"
	c.TTL, c.Urgency, c.Topic = 60e9, "high", "news"
	c.Guard.Ports, c.Guard.Allow = []int{w.Port}, []string{"127.0.0.1"}
	return opened(t, c)
}
