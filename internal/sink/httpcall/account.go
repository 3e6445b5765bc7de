package httpcall

import (
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

const keyAccount = "service_account_file"

// Account is the key of a service account. Its fields are named by each service in its own way.
type Account struct {
	Fields  map[string]string
	private *rsa.PrivateKey
}

// ReadAccount reads the JSON file of a service account's key, which has a private key and some fields more. It tells the Reader of
// errors, which do not repeat the content.
func ReadAccount(r *access.Reader, path string, needs ...string) *Account {
	fail := func(format string, args ...any) {
		r.Fail(fmt.Errorf("%s: %s %w", keyAccount, path, fmt.Errorf(format, args...)))
	}
	a := &Account{Fields: map[string]string{}}
	var content map[string]any
	if json.Unmarshal(r.File(keyAccount, path), &content) != nil {
		fail("is not the JSON file of a service account's key")
	}
	for name, value := range content {
		a.Fields[name], _ = value.(string)
	}
	for _, name := range needs {
		if a.Fields[name] == "" {
			fail("has no %s; use the JSON file of a service account's key", strings.Join(needs, " or no "))
		}
	}
	var err error
	if a.private, err = jwt.RSA([]byte(a.Fields["private_key"])); err != nil {
		fail("has a private_key that %w", err)
	}
	return a
}

const (
	signedFor  = time.Hour
	clockSlack = 10 * time.Second
)

// Sign returns a token of the account that has the claims for about an hour.
func (a *Account) Sign(alg jwt.Algorithm, keyID string, claims map[string]any) (token.Token, error) {
	issued := time.Now().Add(-clockSlack)
	claims["iat"], claims["exp"] = issued.Unix(), issued.Add(signedFor).Unix()
	text, err := jwt.Sign(alg, a.private, map[string]any{"typ": "JWT", "kid": keyID}, claims)
	if err != nil {
		return token.Token{}, &token.Error{Class: delivery.Misconfigured, Detail: keyAccount + ": " + err.Error()}
	}
	return token.Token{Value: text, Life: signedFor - clockSlack}, nil
}
