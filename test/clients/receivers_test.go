package clients

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

func secretOf(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// TestStandardWebhooks: the official verifier accepts an http sink's signatures, by the old and by the new secret, for any job id. It
// rejects others.
func TestStandardWebhooks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		secret string
		spoil  func(body *[]byte, header http.Header)
		want   delivery.ResultClass
	}{
		{secret: secretOf("n"), want: delivery.Delivered},
		{secret: secretOf("o"), want: delivery.Delivered},
		{secret: secretOf("x"), want: delivery.Misconfigured},
		{secretOf("n"), func(body *[]byte, _ http.Header) { *body = append(*body, ' ') }, delivery.Misconfigured},
		{secretOf("n"), func(_ *[]byte, h http.Header) { h.Set("Webhook-Id", "another") }, delivery.Misconfigured},
	} {
		verifier, err := standardwebhooks.NewWebhook(tt.secret)
		noError(t, err)
		deliver := delivers(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if tt.spoil != nil {
				tt.spoil(&body, r.Header)
			}
			if err == nil {
				err = verifier.Verify(body, r.Header)
			}
			if err != nil {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}), func(c *sinkhttp.Config) { c.Sign.Secrets = []string{secretOf("n"), secretOf("o")} })
		for _, id := range []string{"u-42", "pacer.jobs/0/7", "a.b.c", strings.Repeat("x", 256)} {
			if res := deliver(&delivery.Job{ID: id, Campaign: "c", Payload: []byte(`{"n":1}`)}); res.Class != tt.want {
				t.Errorf("%.20s: %+v, want %s", id, res, tt.want)
			}
		}
	}
}

// TestCloudEvents: their receiver takes what an http sink sends, in both modes, for the event that the job's record holds.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"binary", "structured"} {
		var got cloudevents.Event
		protocol, err := cloudevents.NewHTTP()
		noError(t, err)
		receiver, err := cloudevents.NewHTTPReceiveHandler(context.Background(), protocol, func(e cloudevents.Event) { got = e })
		noError(t, err)
		deliver := delivers(t, receiver, func(c *sinkhttp.Config) { c.CloudEvents = mode })
		subject := `Zoë "42%"`
		if mode == "binary" { // where headers are percent-encoded, which this receiver does not decode
			subject = "order-42"
		}
		for _, tt := range []struct{ kind, payload string }{
			{"application/json", `{"name":"Zoë","n":12345678901234567890}`}, {"text/plain", "hellö"}, {"application/octet-stream", "\x00\xff"},
		} {
			job := &delivery.Job{ID: "e-1", Campaign: "c", Payload: []byte(tt.payload), Meta: delivery.Meta{ContentType: tt.kind}}
			for name, value := range map[string]string{
				"ce_specversion": "1.0", "ce_id": "e-1", "ce_source": "/shop", "ce_type": "order.made", "ce_subject": subject,
				"ce_time": "2026-11-01T12:00:00Z", "ce_tenant": "blue",
			} {
				job.Headers = append(job.Headers, delivery.Header{Key: name, Value: []byte(value)})
			}
			if res := deliver(job); res.Class != delivery.Delivered {
				t.Errorf("%s, %s: %+v", mode, tt.kind, res)
				continue
			}
			said := fmt.Sprint(got.ID(), got.Source(), got.Type(), got.Subject(), got.Time().Format(time.RFC3339), got.Extensions()["tenant"], got.DataContentType())
			want := fmt.Sprint("e-1", "/shop", "order.made", subject, "2026-11-01T12:00:00Z", "blue", tt.kind)
			if err := got.Validate(); err != nil || said != want || string(got.Data()) != tt.payload {
				t.Errorf("%s, %s: %v, %s with %q, want %s", mode, tt.kind, err, said, got.Data(), want)
			}
		}
		if res := deliver(&delivery.Job{ID: "e-2", Campaign: "c", Payload: []byte("no event")}); res.Class != delivery.Permanent {
			t.Errorf("%s: %+v", mode, res)
		}
	}
}
