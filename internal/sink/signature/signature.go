// Package signature signs requests as Standard Webhooks does: https://github.com/standard-webhooks/standard-webhooks.
package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	prefixHMAC    = "whsec_" // a secret that both sides have
	prefixEd25519 = "whsk_"  // a private key; the destination has the public one

	minSecret = 24 // bytes
	maxSecret = 64

	// MaxSecrets is how many secrets a request may be signed with: while they are rotated, two.
	MaxSecrets = 4
)

// Signer signs requests with one or several secrets. It is safe for concurrent use, and never changes.
type Signer struct{ keys []key }

type key struct {
	secret  []byte             // of HMAC
	states  *sync.Pool         // of hash.Hash, keyed with it
	private ed25519.PrivateKey // of ed25519; nil for HMAC
}

// New makes a Signer. The error does not repeat a secret.
func New(secrets []string) (*Signer, error) {
	if len(secrets) > MaxSecrets {
		return nil, fmt.Errorf("%d of them; use at most %d", len(secrets), MaxSecrets)
	}
	s := &Signer{}
	for i, secret := range secrets {
		k, err := parse(secret)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		s.keys = append(s.keys, k)
	}
	return s, nil
}

// IsSecret reports whether a value is a secret that signs requests.
func IsSecret(value string) bool { return Shared(value) || strings.HasPrefix(value, prefixEd25519) }

// Shared reports whether the secret that makes signatures also verifies them.
func Shared(secret string) bool { return strings.HasPrefix(secret, prefixHMAC) }

func parse(secret string) (k key, err error) {
	text, isHMAC := strings.CutPrefix(secret, prefixHMAC)
	if !isHMAC {
		var isKey bool
		if text, isKey = strings.CutPrefix(secret, prefixEd25519); !isKey {
			return k, errors.New("must begin with whsec_ (HMAC) or whsk_ (ed25519)")
		}
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return k, errors.New("must be base64 behind its prefix")
	}
	switch {
	case isHMAC && (len(b) < minSecret || len(b) > maxSecret):
		return k, fmt.Errorf("must have %d to %d bytes behind whsec_, not %d", minSecret, maxSecret, len(b))
	case isHMAC:
		return key{secret: b, states: &sync.Pool{New: func() any { return hmac.New(sha256.New, b) }}}, nil
	case len(b) == ed25519.SeedSize:
		return key{private: ed25519.NewKeyFromSeed(b)}, nil
	case len(b) == ed25519.PrivateKeySize && ed25519.NewKeyFromSeed(b[:ed25519.SeedSize]).Equal(ed25519.PrivateKey(b)):
		return key{private: b}, nil
	}
	return k, errors.New("must be a private key of ed25519 behind whsk_, of 32 or 64 bytes")
}

// ID returns the id under which a job is signed. A signature divides its parts by dots, so an id with a dot is replaced by one
// without, always the same.
func ID(id string) string {
	if !strings.Contains(id, ".") {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "msg_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// Timestamp returns the value of the header webhook-timestamp for an attempt.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// Sign returns the value of the header webhook-signature: one signature for each secret.
func (s *Signer) Sign(id, timestamp string, body []byte) string {
	head := make([]byte, 0, 256)
	head = append(append(append(append(head, id...), '.'), timestamp...), '.')
	var list []byte
	for i := range s.keys {
		if i > 0 {
			list = append(list, ' ')
		}
		list = s.keys[i].append(list, head, body)
	}
	return string(list)
}

func (k *key) append(list, head, body []byte) []byte {
	if k.private != nil {
		signed := append(append(make([]byte, 0, len(head)+len(body)), head...), body...)
		return base64.StdEncoding.AppendEncode(append(list, "v1a,"...), ed25519.Sign(k.private, signed))
	}
	state := k.states.Get().(hash.Hash)
	defer k.states.Put(state)
	state.Reset()
	_, _ = state.Write(head)
	_, _ = state.Write(body)
	var sum [sha256.Size]byte
	return base64.StdEncoding.AppendEncode(append(list, "v1,"...), state.Sum(sum[:0]))
}
