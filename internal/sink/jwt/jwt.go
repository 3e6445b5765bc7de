// Package jwt makes signed tokens (RFC 7519).
package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// Algorithm is how a token is signed.
type Algorithm string

// The algorithms, by their names in RFC 7518.
const (
	RS256 Algorithm = "RS256" // RSA, PKCS #1 v1.5
	PS256 Algorithm = "PS256" // RSA, PSS: two tokens differ
	ES256 Algorithm = "ES256" // ECDSA on P-256, deterministic (RFC 6979): the same header and claims make the same bytes
)

// Sign returns a token of the header and the claims, both maps of texts and numbers. It adds the algorithm to the header.
func Sign(alg Algorithm, key crypto.Signer, header, claims map[string]any) (string, error) {
	header["alg"] = alg
	var text []byte
	for i, part := range []map[string]any{header, claims} {
		b, err := json.Marshal(part)
		if err != nil {
			return "", fmt.Errorf("sign a token: %w", err)
		}
		if i > 0 {
			text = append(text, '.')
		}
		text = base64.RawURLEncoding.AppendEncode(text, b)
	}
	digest := sha256.Sum256(text)
	signature, err := sign(alg, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return string(base64.RawURLEncoding.AppendEncode(append(text, '.'), signature)), nil
}

func sign(alg Algorithm, key crypto.Signer, digest []byte) ([]byte, error) {
	switch alg {
	case RS256:
		return key.Sign(rand.Reader, digest, crypto.SHA256)
	case PS256:
		return key.Sign(rand.Reader, digest, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	}
	der, err := key.Sign(nil, digest, crypto.SHA256) // without a source of randomness, it is deterministic
	if err != nil {
		return nil, err
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		return nil, err
	}
	signature := make([]byte, 64)
	pair.R.FillBytes(signature[:32])
	pair.S.FillBytes(signature[32:])
	return signature, nil
}

// RSA reads a private key in PEM.
func RSA(content []byte) (*rsa.PrivateKey, error) {
	return parse(content, x509.ParsePKCS1PrivateKey, "holds no RSA key")
}

// P256 reads a private key in PEM.
func P256(content []byte) (*ecdsa.PrivateKey, error) {
	const wrong = "holds no key of P-256"
	key, err := parse(content, x509.ParseECPrivateKey, wrong)
	if err == nil && key.Curve != elliptic.P256() {
		return nil, errors.New(wrong)
	}
	return key, err
}

// parse reads a key in its own form, or in that of PKCS #8. The error repeats nothing of the content; wrong is that of another kind of key.
func parse[K any](content []byte, own func([]byte) (K, error), wrong string) (key K, err error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return key, errors.New("holds no key in PEM")
	}
	if key, err = own(block.Bytes); err == nil {
		return key, nil
	}
	parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(K)
	if !ok {
		return key, errors.New(wrong)
	}
	return key, nil
}
