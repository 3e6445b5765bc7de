package apns

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"
)

// signer makes the token that requests are sent with. The service wants a token to be between 20 minutes and an hour old when
// it is replaced, and counts how often that happens, over all connections. So the token is a function of the key and the
// time alone: it says that it was issued at the last multiple of 40 minutes, and its signature is deterministic (RFC 6979),
// so that all daemons send the same bytes and none needs to tell the others.
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
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("holds no key in PEM; use the .p8 file of a signing key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("holds no key of P-256; use the .p8 file of a signing key")
	}
	return &signer{key: key, keyID: keyID, team: team}, nil
}

// token returns the token for now.
func (s *signer) token(now time.Time) (string, error) {
	issued := now.Unix() - now.Unix()%int64(life/time.Second)
	if c := s.current.Load(); c != nil && c.issued == issued {
		return c.text, nil
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode(fmt.Appendf(nil, `{"alg":"ES256","kid":%q}`, s.keyID)) + "." +
		encode(fmt.Appendf(nil, `{"iss":%q,"iat":%d}`, s.team, issued))
	digest := sha256.Sum256([]byte(text))
	der, err := s.key.Sign(nil, digest[:], crypto.SHA256) // without a source of randomness, it is deterministic
	if err != nil {
		return "", err
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		return "", err
	}
	var signature [64]byte
	pair.R.FillBytes(signature[:32])
	pair.S.FillBytes(signature[32:])
	text += "." + encode(signature[:])
	s.current.Store(&signed{issued, text})
	return text, nil
}
