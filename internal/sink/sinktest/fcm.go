package sinktest

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// FCM stands in for Firebase Cloud Messaging, with the server of its tokens. It speaks HTTP/2 over TLS. It refuses requests
// that the service would refuse, counts the others by recipient, and treats them as it is told.
type FCM struct {
	*Server
	KeyFile string // of a service account
	Project string

	// Token, if set, treats requests for a token. Before the first request.
	Token func(n int, c *Call) (treated bool)

	key    *rsa.PublicKey
	tokens atomic.Int32 // given out
	revoke atomic.Int32 // tokens up to this one are not accepted

	received counter // by recipient
	mu       sync.Mutex
	bodies   [][]byte
}

// StartFCM starts a stand-in that calls treat for each message that is in order, the n-th for its recipient: it answers, or
// returns false for the usual answer.
func StartFCM(t testing.TB, treat func(c *Call, recipient string, n int) (treated bool)) *FCM {
	t.Helper()
	f := &FCM{Project: "demo"}
	f.Server = Start(t, HTTP2, Options{}, func(c *Call) {
		if c.Path == "/token" {
			f.give(c)
			return
		}
		f.take(c, treat)
	})
	f.URL = strings.TrimSuffix(f.URL, "/deliver")
	f.key, f.KeyFile = accountFile(t, map[string]string{
		"type": "service_account", "project_id": f.Project, "private_key_id": "k1", "client_email": "pacer@demo.iam.example", "token_uri": f.URL + "/token",
	})
	return f
}

// JSON answers with a body of JSON.
func (c *Call) JSON(status int, body string, header ...string) {
	c.Begin(status, append([]string{"Content-Type", "application/json"}, header...)...)
	time.Sleep(c.Late)
	_ = c.Body([]byte(body))
	c.End()
}

// Fail answers as the service does with an error: the status by its name, FCM's own code if there is one, and details.
func (f *FCM) Fail(c *Call, status int, name, code string, header ...string) {
	details := "[]"
	if code != "" {
		details = `[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + code + `"}]`
	}
	c.JSON(status, fmt.Sprintf(`{"error":{"code":%d,"message":"no","status":%q,"details":%s}}`, status, name, details), header...)
}

// Throttle answers that the quota of a subject, such as a device, is used up.
func (f *FCM) Throttle(c *Call, subject string, wait time.Duration) {
	c.JSON(429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
		{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"QUOTA_EXCEEDED"},
		{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"`+subject+`","description":"rate exceeded"}]}]}}`,
		"Retry-After", strconv.Itoa(int(wait.Seconds())))
}

// Tokens returns how many tokens were given out.
func (f *FCM) Tokens() int { return int(f.tokens.Load()) }

// Give gives a token out, which is good until it is revoked.
func (f *FCM) Give() string { return fmt.Sprintf("ya29.token-%d", f.tokens.Add(1)) }

// Revoke makes the tokens that were given out so far invalid.
func (f *FCM) Revoke() { f.revoke.Store(f.tokens.Load()) }

// Received returns how many messages for a recipient were read to their end.
func (f *FCM) Received(recipient string) int { return f.received.of(recipient) }

// Count returns how many messages were read to their end.
func (f *FCM) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.bodies)
}

// Bodies returns the requests with messages.
func (f *FCM) Bodies() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([][]byte(nil), f.bodies...)
}

// give gives out a token.
func (f *FCM) give(c *Call) {
	n := f.tokens.Add(1)
	if f.Token != nil && f.Token(int(n), c) {
		return
	}
	form, err := url.ParseQuery(string(c.Payload))
	if err != nil || form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || !f.asserted(form.Get("assertion")) {
		c.JSON(400, `{"error":"invalid_grant"}`)
		return
	}
	c.JSON(200, fmt.Sprintf(`{"access_token":"ya29.token-%d","expires_in":3600,"token_type":"Bearer"}`, n))
}

// asserted checks a JWT.
func (f *FCM) asserted(jwt string) bool {
	var head struct{ Alg, Kid string }
	var claims struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	fits := func(digest, signature []byte) bool {
		return rsa.VerifyPKCS1v15(f.key, crypto.SHA256, digest, signature) == nil
	}
	now := time.Now().Unix()
	return signed(jwt, fits, &head, &claims) && head.Alg == "RS256" && head.Kid == "k1" &&
		claims.Iss == "pacer@demo.iam.example" && claims.Aud == f.URL+"/token" && claims.Iat <= now && claims.Exp > now &&
		claims.Exp-claims.Iat <= 3600 && claims.Scope == "https://www.googleapis.com/auth/firebase.messaging"
}

// take takes a message.
func (f *FCM) take(c *Call, treat func(c *Call, recipient string, n int) bool) {
	var n int32
	if _, err := fmt.Sscanf(c.Header.Get("Authorization"), "Bearer ya29.token-%d", &n); err != nil || n <= f.revoke.Load() || n > f.tokens.Load() {
		f.Fail(c, 401, "UNAUTHENTICATED", "")
		return
	}
	if c.Path != "/v1/projects/"+f.Project+"/messages:send" {
		f.Fail(c, 404, "NOT_FOUND", "")
		return
	}
	recipient, check, ok := recipientOf(c.Payload)
	if !ok {
		f.Fail(c, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
		return
	}
	f.mu.Lock()
	f.bodies = append(f.bodies, c.Payload)
	f.mu.Unlock()
	count := 0
	if !check {
		count = f.received.add(recipient)
	}
	if check || treat == nil || !treat(c, recipient, count) {
		c.JSON(200, fmt.Sprintf(`{"name":"projects/%s/messages/%s-%d"}`, f.Project, recipient, count))
	}
}

// RecipientOf returns whose the message of a request is.
func RecipientOf(c *Call) string {
	recipient, _, _ := recipientOf(c.Payload)
	return recipient
}

// recipientOf checks a request as the service does, and returns whose the message is, and whether it is only to be checked.
func recipientOf(body []byte) (recipient string, check, ok bool) {
	var r struct {
		ValidateOnly bool `json:"validate_only"`
		Message      struct {
			Token, Topic, Condition string
			Data                    map[string]string
			Notification            map[string]any
			Android, Apns, Webpush  map[string]any
			FcmOptions              map[string]any `json:"fcm_options"`
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if d.Decode(&r) != nil {
		return "", false, false
	}
	m, targets := r.Message, 0
	for _, t := range []string{m.Token, m.Topic, m.Condition} {
		if t != "" {
			targets++
		}
	}
	return m.Token + m.Topic + m.Condition, r.ValidateOnly, targets == 1
}
