package webpush

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

// vapid makes the header Authorization, which names the sender to a push service (RFC 8292). It has one token for each origin and reuses
// it. As a token is a function of the key, the origin and the time alone, all daemons send the same.
//
// Safe for concurrent use. No delivery waits while another signs.
type vapid struct {
	key     *ecdsa.PrivateKey
	public  string // as the browser got it when it subscribed
	subject string

	mu      sync.Mutex
	expires int64             // of all tokens, in Unix seconds
	headers map[string]string // by origin
}

const (
	changes    = 6 * time.Hour // from one token to the next
	validFor   = 18 * time.Hour
	maxOrigins = 1000 // that are remembered: they come from jobs
)

// Errors of keys. They repeat nothing of the content.
var errKey = errors.New("no private key of P-256; use one in PEM, or its 32 bytes in base64url as the tools for web push print it")

// readKey reads the private key of the sender.
func readKey(text string) (*ecdsa.PrivateKey, error) {
	if strings.Contains(text, "-----BEGIN") {
		key, err := jwt.P256([]byte(text))
		if err != nil {
			return nil, errKey
		}
		return key, nil
	}
	raw, err := decode(strings.TrimSpace(text))
	if err != nil {
		return nil, errKey
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return nil, errKey
	}
	return key, nil
}

func newVAPID(key *ecdsa.PrivateKey, subject string) (*vapid, error) {
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, errKey
	}
	return &vapid{key: key, public: base64.RawURLEncoding.EncodeToString(public), subject: subject}, nil
}

// header returns the value of Authorization for a request to an endpoint at now.
func (v *vapid) header(endpoint *url.URL, now time.Time) (string, error) {
	origin := originOf(endpoint)
	expires := now.Truncate(changes).Add(validFor).Unix()
	v.mu.Lock()
	if v.expires != expires || len(v.headers) >= maxOrigins {
		v.expires, v.headers = expires, map[string]string{}
	}
	header := v.headers[origin]
	v.mu.Unlock()
	if header != "" {
		return header, nil
	}
	text, err := jwt.Sign(jwt.ES256, v.key, map[string]any{"typ": "JWT"}, map[string]any{"aud": origin, "exp": expires, "sub": v.subject})
	if err != nil {
		return "", &token.Error{Class: delivery.Misconfigured, Detail: "vapid_key: " + err.Error()}
	}
	header = fmt.Sprintf("vapid t=%s, k=%s", text, v.public)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.expires == expires {
		v.headers[origin] = header
	}
	return header, nil
}

// originOf returns the origin of an address (RFC 6454): without the port where it is the usual one.
func originOf(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if usual := map[string]string{"https": ":443", "http": ":80"}[scheme]; usual != "" {
		host = strings.TrimSuffix(host, usual)
	}
	return scheme + "://" + strings.TrimSuffix(host, ":")
}
