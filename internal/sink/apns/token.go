package apns

import (
	"crypto/ecdsa"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

// signer makes the token that requests are sent with. The service wants a token to be between 20 minutes and an hour old when it is
// replaced, and counts how often that happens, over all connections. So the token is a function of the key and the time alone. Its issue
// time is the last multiple of 40 minutes, and its signature is deterministic (RFC 6979). All daemons send the same bytes without an
// exchange between them.
//
// Safe for concurrent use. No delivery waits for another: two that need the next token at once make the same.
type signer struct {
	key         *ecdsa.PrivateKey
	keyID, team string
	current     atomic.Pointer[signed]
}

// signed is a token.
type signed struct {
	issued int64 // Unix seconds
	text   string
}

const life = 40 * time.Minute

// newSigner reads the key file. An error does not repeat its content.
func newSigner(content []byte, keyID, team string) (*signer, error) {
	key, err := jwt.P256(content)
	if err != nil {
		return nil, fmt.Errorf("%w; use the .p8 file of a signing key", err)
	}
	return &signer{key: key, keyID: keyID, team: team}, nil
}

// token returns the token for now.
func (s *signer) token(now time.Time) (string, error) {
	issued := now.Unix() - now.Unix()%int64(life/time.Second)
	if c := s.current.Load(); c != nil && c.issued == issued {
		return c.text, nil
	}
	text, err := jwt.Sign(jwt.ES256, s.key, map[string]any{"kid": s.keyID}, map[string]any{"iss": s.team, "iat": issued})
	if err != nil {
		return "", &token.Error{Class: delivery.Misconfigured, Detail: "auth_key_file: " + err.Error()}
	}
	s.current.Store(&signed{issued, text})
	return text, nil
}
