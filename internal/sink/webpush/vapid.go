package webpush

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink/jwt"
)

const (
	changes  = 6 * time.Hour // from one token of the sender to the next
	validFor = 18 * time.Hour
)

// errKey repeats nothing of the content.
var errKey = errors.New("no private key of P-256; use one in PEM, or its 32 bytes in base64url as the tools for web push print it")

// readKey reads the private key of the sender.
func readKey(text string) (*ecdsa.PrivateKey, error) {
	key, err := jwt.P256([]byte(text))
	if raw, wrong := decode(strings.TrimSpace(text)); err != nil && wrong == nil {
		key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	}
	if err != nil {
		return nil, errKey
	}
	return key, nil
}

// newVAPID makes what signs the header Authorization, which names the sender to the push service of an origin (RFC 8292).
func newVAPID(key *ecdsa.PrivateKey, subject string) *jwt.Stable {
	public, _ := key.PublicKey.Bytes() // as the browser got it when it subscribed; a key of P-256 has one
	return &jwt.Stable{
		Key: key, Every: changes, Header: map[string]any{"typ": "JWT"},
		Before: "vapid t=", After: ", k=" + base64.RawURLEncoding.EncodeToString(public),
		Claims: func(origin string, begun time.Time) map[string]any {
			return map[string]any{"aud": origin, "exp": begun.Add(validFor).Unix(), "sub": subject}
		},
	}
}

// originOf returns the origin of an address (RFC 6454): without the port where it is the usual one.
func originOf(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if usual := map[string]string{"https": ":443", "http": ":80"}[scheme]; usual != "" {
		host = strings.TrimSuffix(host, usual)
	}
	return scheme + "://" + strings.TrimSuffix(host, ":")
}
