package sinktest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// WebPush stands in for a push service and for the user agents that have subscribed there. It speaks HTTP/2 over TLS. It
// refuses requests that a service would refuse, decrypts the others, counts them by recipient, and treats them as it is told.
type WebPush struct {
	*Server
	Key, Public string // the sender's pair of keys, in base64url
	Port        int

	agent *ecdh.PrivateKey
	auth  []byte

	received counter
	mu       sync.Mutex
	got      []Pushed
}

// Pushed is a message that has arrived.
type Pushed struct {
	Recipient, Message  string
	TTL, Urgency, Topic string
	Authorization, Salt string
}

// StartWebPush starts a stand-in that calls treat for each message that is in order, the n-th for its recipient: it answers,
// or returns false for the usual answer.
func StartWebPush(t testing.TB, treat func(c *Call, recipient string, n int) (treated bool)) *WebPush {
	t.Helper()
	sender, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := sender.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	public, err := sender.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	w := &WebPush{Key: base64.RawURLEncoding.EncodeToString(private), Public: base64.RawURLEncoding.EncodeToString(public), auth: make([]byte, 16)}
	if w.agent, err = ecdh.P256().GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	if _, err := rand.Read(w.auth); err != nil {
		t.Fatal(err)
	}
	w.Server = Start(t, HTTP2, Options{}, func(c *Call) { w.take(c, treat) })
	w.URL = strings.TrimSuffix(w.URL, "/deliver")
	u, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	if w.Port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	return w
}

// Subscription returns that of a recipient, as a browser gives it.
func (w *WebPush) Subscription(recipient string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"endpoint":"%s%s%s","expirationTime":null,"keys":{"p256dh":%q,"auth":%q}}`,
		w.URL, pushPath, url.PathEscape(recipient), encode(w.agent.PublicKey().Bytes()), encode(w.auth))
}

const pushPath = "/push/"

// SubscriberOf returns the recipient of the request.
func SubscriberOf(c *Call) string {
	escaped := strings.TrimPrefix(c.Path, pushPath)
	if name, err := url.PathUnescape(escaped); err == nil {
		return name
	}
	return escaped
}

// Received returns how many messages for a recipient were read to their end.
func (w *WebPush) Received(recipient string) int { return w.received.of(recipient) }

// Got returns the messages.
func (w *WebPush) Got() []Pushed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Pushed(nil), w.got...)
}

func (w *WebPush) take(c *Call, treat func(c *Call, recipient string, n int) bool) {
	if why := w.sender(c.Header.Get("Authorization")); why != "" {
		c.JSON(403, fmt.Sprintf(`{"reason":%q}`, why))
		return
	}
	if _, err := strconv.ParseUint(c.Header.Get("Ttl"), 10, 31); err != nil || !strings.HasPrefix(c.Path, pushPath) {
		c.JSON(400, `{"code":400,"errno":111,"error":"Bad Request"}`)
		return
	}
	var message string
	if len(c.Payload) > 0 {
		plain, err := w.decrypt(c.Payload)
		if err != nil || c.Header.Get("Content-Encoding") != "aes128gcm" || len(c.Payload) > 4096 {
			c.JSON(400, `{"code":400,"errno":110,"error":"Bad Request"}`)
			return
		}
		message = string(plain)
	}
	recipient := SubscriberOf(c)
	n := w.received.add(recipient)
	w.mu.Lock()
	w.got = append(w.got, Pushed{
		Recipient: recipient, Message: message, TTL: c.Header.Get("Ttl"), Urgency: c.Header.Get("Urgency"), Topic: c.Header.Get("Topic"),
		Authorization: c.Header.Get("Authorization"), Salt: string(c.Payload[:min(16, len(c.Payload))]),
	})
	w.mu.Unlock()
	if treat == nil || !treat(c, recipient, n) {
		c.Answer(201, "Location", w.URL+"/m/"+strconv.Itoa(n))
	}
}

// sender returns what is wrong with the token of the sender (RFC 8292).
func (w *WebPush) sender(authorization string) (reason string) {
	t, k, ok := strings.Cut(strings.TrimPrefix(authorization, "vapid t="), ", k=")
	if !ok || !strings.HasPrefix(authorization, "vapid t=") {
		return "MissingProviderToken"
	}
	if k != w.Public {
		return "VapidPkHashMismatch"
	}
	public, err := base64.RawURLEncoding.DecodeString(k)
	if err != nil {
		return "BadAuthorizationHeader"
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), public)
	if err != nil {
		return "BadAuthorizationHeader"
	}
	var head struct{ Typ, Alg string }
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	valid := signed(t, es256(key), &head, &claims)
	left := time.Until(time.Unix(claims.Exp, 0))
	if !valid || head.Typ != "JWT" || head.Alg != "ES256" || claims.Aud != w.URL || !strings.HasPrefix(claims.Sub, "mailto:") || left <= 0 || left > 24*time.Hour {
		return "BadJwtToken"
	}
	return ""
}

var errEncrypted = errors.New("not a message of RFC 8291")

// decrypt decrypts a message as a user agent does (RFC 8188, RFC 8291).
func (w *WebPush) decrypt(body []byte) ([]byte, error) {
	if len(body) < 21 || len(body) < 21+int(body[20]) {
		return nil, errEncrypted
	}
	salt, size, id, sealed := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:21+int(body[20])], body[21+int(body[20]):]
	sender, err := ecdh.P256().NewPublicKey(id)
	if err != nil || len(sealed) > int(size) {
		return nil, errEncrypted
	}
	shared, err := w.agent.ECDH(sender)
	if err != nil {
		return nil, err
	}
	extracted, err := hkdf.Extract(sha256.New, shared, w.auth)
	if err != nil {
		return nil, err
	}
	info := append(append([]byte("WebPush: info\x00"), w.agent.PublicKey().Bytes()...), id...)
	material, err := hkdf.Expand(sha256.New, extracted, string(info), 32)
	if err != nil {
		return nil, err
	}
	extracted, err = hkdf.Extract(sha256.New, material, salt)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, extracted, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Expand(sha256.New, extracted, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := gcm.Open(nil, nonce, sealed, nil)
	if err != nil {
		return nil, err
	}
	plain = []byte(strings.TrimRight(string(plain), "\x00"))
	if len(plain) == 0 || plain[len(plain)-1] != 2 {
		return nil, errEncrypted
	}
	return plain[:len(plain)-1], nil
}
