package http

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/signature"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func secretOf(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(letter), 32))
}

// TestSignedRequests: what is signed is what was sent, with each secret, at the time of the attempt; a new secret is used as
// soon as its file has been read.
func TestSignedRequests(t *testing.T) {
	url, last := got(t)
	current := secretOf("a")
	s := newSink(t, Config{URL: url}, func(c *Config) {
		c.Sign.Secrets = []string{current, secretOf("o")}
		c.SecretFrom("sign.secrets.0", func() (string, error) { return current, nil })
		c.Body = `{"made":"{{ .ID }}"}`
	})
	for _, step := range []struct{ secret, id, sent string }{
		{secretOf("a"), "u-42", "u-42"}, {secretOf("b"), "pacer.jobs/0/7", signature.ID("pacer.jobs/0/7")},
	} {
		if current != step.secret {
			current = step.secret
			s.Reread()
		}
		j := job()
		j.ID = step.id
		before := time.Now()
		sinktest.Deliver(t, s, j, delivery.Delivered)
		timestamp := last.header.Get("webhook-timestamp")
		if timestamp != signature.Timestamp(before) && timestamp != signature.Timestamp(time.Now()) {
			t.Errorf("timestamp %s", timestamp)
		}
		signer, err := signature.New([]string{step.secret, secretOf("o")})
		if err != nil {
			t.Fatal(err)
		}
		if want := signer.Sign(step.sent, timestamp, []byte(last.body)); last.header.Get("webhook-signature") != want || strings.Count(want, "v1,") != 2 {
			t.Errorf("signature %s, want %s", last.header.Get("webhook-signature"), want)
		}
		if last.header.Get("webhook-id") != step.sent || last.header.Get("idempotency-key") != step.sent {
			t.Errorf("ids %q %q", last.header.Get("webhook-id"), last.header.Get("idempotency-key"))
		}
	}
}
