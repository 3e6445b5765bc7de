package sinktest

import (
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// HMS stands in for Push Kit of Huawei, with its server of tokens. It speaks HTTP/2 over TLS. It refuses requests that the
// service would refuse, counts the others by token, and treats them as it is told.
type HMS struct {
	*Server
	KeyFile string // of a service account
	Project string
	Secret  string // of the client "100"

	key      *rsa.PublicKey
	given    atomic.Int32 // access tokens
	received counter
}

// StartHMS starts a stand-in that calls treat for each message that is in order, the n-th for its token: it answers, or
// returns false for the usual answer.
func StartHMS(t testing.TB, treat func(c *Call, recipient string, n int) (treated bool)) *HMS {
	t.Helper()
	h := &HMS{Project: "388421841222", Secret: strings.Repeat("s", 20)}
	h.key, h.KeyFile = accountFile(t, map[string]string{"project_id": h.Project, "key_id": "k1", "sub_account": "a1"})
	h.Server = Start(t, HTTP2, Options{}, func(c *Call) {
		if c.Path == "/oauth2/v3/token" {
			h.give(c)
			return
		}
		h.take(c, treat)
	})
	h.URL = strings.TrimSuffix(h.URL, "/deliver")
	return h
}

// TokenURL is where access tokens are given.
func (h *HMS) TokenURL() string { return h.URL + "/oauth2/v3/token" }

// Say answers with a code of the service.
func (h *HMS) Say(c *Call, status int, code, msg string, header ...string) {
	c.JSON(status, fmt.Sprintf(`{"code":%q,"msg":%q,"requestId":"r-%d"}`, code, msg, c.N), header...)
}

// Received returns how many messages for a token were read to their end.
func (h *HMS) Received(recipient string) int { return h.received.of(recipient) }

func (h *HMS) give(c *Call) {
	form, err := url.ParseQuery(string(c.Payload))
	if err != nil || form.Get("grant_type") != "client_credentials" || form.Get("client_id") != "100" || form.Get("client_secret") != h.Secret {
		c.JSON(400, `{"error":1101,"sub_error":20001,"error_description":"invalid client"}`)
		return
	}
	c.JSON(200, fmt.Sprintf(`{"access_token":"CgB6e3x9-%d","expires_in":3600,"token_type":"Bearer"}`, h.given.Add(1)))
}

// trusts reports whether a token is one of the service account, or was given out.
func (h *HMS) trusts(bearer string) bool {
	var n int32
	if _, err := fmt.Sscanf(bearer, "CgB6e3x9-%d", &n); err == nil {
		return n <= h.given.Load()
	}
	var head struct{ Alg, Kid, Typ string }
	var claims struct {
		Iss, Aud string
		Iat, Exp int64
	}
	fits := func(digest, signature []byte) bool {
		return rsa.VerifyPSS(h.key, crypto.SHA256, digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
	}
	now := time.Now().Unix()
	return signed(bearer, fits, &head, &claims) && head.Alg == "PS256" && head.Kid == "k1" && head.Typ == "JWT" &&
		claims.Iss == "a1" && claims.Aud == h.TokenURL() && claims.Iat <= now && claims.Exp > now && claims.Exp-claims.Iat <= 3600
}

// pushed is a message, as far as it is looked at.
type pushed struct {
	Payload map[string]any
	Target  struct{ Token []string }
}

// PushedTo returns whose the message of a request is.
func PushedTo(c *Call) string {
	var m pushed
	if json.Unmarshal(c.Payload, &m) != nil || len(m.Target.Token) == 0 {
		return ""
	}
	return m.Target.Token[0]
}

func (h *HMS) take(c *Call, treat func(c *Call, recipient string, n int) bool) {
	bearer, _ := strings.CutPrefix(c.Header.Get("Authorization"), "Bearer ")
	if !h.trusts(bearer) {
		h.Say(c, 401, "80200001", "OAuth authentication error.")
		return
	}
	if c.Path != "/v3/"+h.Project+"/messages:send" || c.Header.Get("Push-Type") == "" {
		c.Answer(404)
		return
	}
	var m pushed
	if json.Unmarshal(c.Payload, &m) != nil || len(m.Payload) == 0 || len(m.Target.Token) == 0 {
		h.Say(c, 400, "80100003", "Illegal payload")
		return
	}
	recipient := m.Target.Token[0]
	if recipient == "pacer-check" {
		h.Say(c, 200, "80300007", `{"failure":1,"illegalTokens":{"invalidToken":["pacer-check"]}}`)
		return
	}
	if n := h.received.add(recipient); treat == nil || !treat(c, recipient, n) {
		h.Say(c, 200, "80000000", "Success")
	}
}
