package sinktest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// signed reports whether a text is a JWT whose signature fits, and reads its header and claims.
func signed(jwt string, fits func(digest, signature []byte) bool, head, claims any) bool {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return false
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !fits(digest[:], signature) {
		return false
	}
	for i, into := range []any{head, claims} {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(b, into) != nil {
			return false
		}
	}
	return true
}

// es256 returns whether a signature is one of ES256 by the key.
func es256(key *ecdsa.PublicKey) func(digest, signature []byte) bool {
	return func(digest, signature []byte) bool {
		return len(signature) == 64 && ecdsa.Verify(key, digest, new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	}
}

var accounts = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// accountFile writes the key file of a service account, with the fields and its private key, which is the same for all stand-ins: making one
// takes long.
func accountFile(t testing.TB, fields map[string]string) (key *rsa.PublicKey, path string) {
	t.Helper()
	private, err := accounts()
	if err != nil {
		t.Fatal(err)
	}
	fields["private_key"] = string(privatePEM(t, private))
	content, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return &private.PublicKey, writeFile(t, "account.json", content)
}

// privatePEM returns a private key in PEM.
func privatePEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func writeFile(t testing.TB, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
