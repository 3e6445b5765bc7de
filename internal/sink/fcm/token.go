package fcm

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/token"
)

const (
	scope       = "https://www.googleapis.com/auth/firebase.messaging"
	grant       = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	assertedFor = time.Hour
	clockSlack  = 10 * time.Second
)

// serviceAccount is the key of a service account.
type serviceAccount struct {
	Email    string `json:"client_email"`
	Key      string `json:"private_key"`
	KeyID    string `json:"private_key_id"`
	TokenURI string `json:"token_uri"`
	Project  string `json:"project_id"`

	private *rsa.PrivateKey
}

// readServiceAccount reads a key file. An error does not repeat its content.
func readServiceAccount(content []byte) (*serviceAccount, error) {
	a := &serviceAccount{}
	if json.Unmarshal(content, a) != nil {
		return nil, errors.New("is not the JSON file of a service account's key")
	}
	if a.Email == "" || a.TokenURI == "" {
		return nil, errors.New("has no client_email or no token_uri; use the JSON file of a service account's key")
	}
	if u, err := url.Parse(a.TokenURI); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("has a token_uri that is no https URL")
	}
	var err error
	if a.private, err = jwt.RSA([]byte(a.Key)); err != nil {
		return nil, fmt.Errorf("has a private_key that %w", err)
	}
	return a, nil
}

// assertion returns the JWT that asks for a token.
func (a *serviceAccount) assertion(now time.Time) (string, error) {
	issued := now.Add(-clockSlack)
	return jwt.Sign(jwt.RS256, a.private, map[string]any{"typ": "JWT", "kid": a.KeyID}, map[string]any{
		"iss": a.Email, "scope": scope, "aud": a.TokenURI, "iat": issued.Unix(), "exp": issued.Add(assertedFor).Unix(),
	})
}

// fetch gets a token.
func (s *Sink) fetch(ctx context.Context) (token.Token, error) {
	p := s.Now()
	assertion, err := p.key.assertion(time.Now())
	if err != nil {
		return token.Token{}, &token.Error{Class: delivery.Misconfigured, Detail: "service_account_file: " + err.Error()}
	}
	return p.FetchToken(ctx, sinkhttp.TokenRequest{
		URL: p.key.TokenURI, Form: url.Values{"grant_type": {grant}, "assertion": {assertion}},
		Key: "service_account_file", Hint: "the key is not accepted",
	})
}
