package fcm

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

const (
	scope       = "https://www.googleapis.com/auth/firebase.messaging"
	grant       = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	assertedFor = time.Hour
	clockSlack  = 10 * time.Second

	fetchTimeout = 10 * time.Second
	maxAnswer    = 64 << 10
	minLife      = time.Second
	maxLife      = 24 * time.Hour
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
	block, _ := pem.Decode([]byte(a.Key))
	if block == nil {
		return nil, errors.New("has no private_key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	private, ok := key.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("has a private_key that is no RSA key")
	}
	a.private = private
	return a, nil
}

// assertion returns the JWT that asks for a token.
func (a *serviceAccount) assertion(now time.Time) (string, error) {
	issued := now.Add(-clockSlack)
	part := func(v any) string {
		b, _ := json.Marshal(v) // maps of texts and numbers
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": a.KeyID}) + "." + part(map[string]any{
		"iss": a.Email, "scope": scope, "aud": a.TokenURI, "iat": issued.Unix(), "exp": issued.Add(assertedFor).Unix(),
	})
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.private, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// token is an access token.
type token struct {
	value string
	life  time.Duration
}

// errKey means that the token's server does not accept the key.
var errKey = errors.New("the key is not accepted")

// fetch gets a token. An error repeats nothing that was sent or answered, but the code of an error.
func (s *Sink) fetch(ctx context.Context) (token, error) {
	p := s.parts.Now()
	assertion, err := p.key.assertion(time.Now())
	if err != nil {
		return token{}, fmt.Errorf("%w: %w", errKey, err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	form := url.Values{"grant_type": {grant}, "assertion": {assertion}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.key.TokenURI, strings.NewReader(form.Encode()))
	if err != nil {
		return token{}, errors.New("token_uri: not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: p.tls.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return token{}, fmt.Errorf("no token from %s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	var said struct {
		Token string `json:"access_token"`
		Life  int64  `json:"expires_in"`
		Error string `json:"error"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(body, &said)
	}
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout:
		return token{}, fmt.Errorf("%s answers HTTP %d %.40q: %w", req.URL.Host, resp.StatusCode, said.Error, errKey)
	case resp.StatusCode != http.StatusOK || err != nil || said.Token == "":
		return token{}, fmt.Errorf("no token from %s: HTTP %d", req.URL.Host, resp.StatusCode)
	}
	return token{said.Token, min(max(time.Duration(said.Life)*time.Second, minLife), maxLife)}, nil
}

// tokens hold the token that messages are sent with. The goroutine of run replaces it at 80 % of its life and when it is
// refused; deliveries read it, and wait only where there is none.
type tokens struct {
	fetch   func(context.Context) (token, error)
	log     *slog.Logger
	current atomic.Pointer[holding]
	asked   retry.Signal // for another token
}

// holding is what deliveries get: a token, or why there is none, or neither while one is being fetched for the first time
// or after a refusal.
type holding struct {
	token    string
	problem  *delivery.Result
	replaced chan struct{} // closed when this is not the current one any more
}

func newTokens(fetch func(context.Context) (token, error), log *slog.Logger) *tokens {
	t := &tokens{fetch: fetch, log: log, asked: retry.NewSignal()}
	t.current.Store(&holding{replaced: make(chan struct{})})
	return t
}

// put replaces what deliveries get by a token.
func (t *tokens) put(value string) { t.set(&holding{token: value}) }

func (t *tokens) set(h *holding) {
	h.replaced = make(chan struct{})
	close(t.current.Swap(h).replaced)
}

// get returns the token, or the result of a delivery without one.
func (t *tokens) get(ctx context.Context) (string, *delivery.Result) {
	for {
		h := t.current.Load()
		if h.token != "" || h.problem != nil {
			return h.token, h.problem
		}
		select {
		case <-h.replaced:
		case <-ctx.Done():
			return "", &delivery.Result{Class: delivery.Unreachable, Detail: "there is no token yet"}
		}
	}
}

// refused is called when the service does not accept a token. Only the first of many calls has an effect.
func (t *tokens) refused(value string) {
	h := t.current.Load()
	if h.token != value {
		return
	}
	none := &holding{replaced: make(chan struct{})}
	if t.current.CompareAndSwap(h, none) {
		close(h.replaced)
		t.asked.Send()
	}
}

// renew has another token fetched; the current one is used meanwhile.
func (t *tokens) renew() { t.asked.Send() }

// pause is how long run waits after a fetch before the next, by the number of fetches that have led to nothing.
var pause = retry.Backoff{Initial: time.Second, Max: time.Minute}

// run fetches tokens until ctx is cancelled.
func (t *tokens) run(ctx context.Context) {
	var expires time.Time // of the current token
	var outage retry.Outage
	useless := 0 // fetches in a row without a token, or with one that was refused at once
	for {
		fresh, err := t.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		begun, next := time.Now(), time.Duration(0)
		if err != nil {
			useless++
			if outage.Failed() {
				t.log.Error("a sink gets no token; its jobs wait", "error", err)
			}
			if !begun.Before(expires) || t.current.Load().token == "" {
				t.set(&holding{problem: without(err)})
			}
			next = pause.Delay(useless)
			if left := expires.Sub(begun); left > 0 {
				next = min(next, left)
			}
		} else {
			if _, over := outage.Worked(); over {
				t.log.Info("a sink gets tokens again")
			}
			expires, next = begun.Add(fresh.life), fresh.life*4/5
			t.put(fresh.value)
		}
		due := time.NewTimer(next)
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case <-due.C:
			if err == nil {
				useless = 0
			}
		case <-t.asked:
			due.Stop()
			if err == nil && time.Since(begun) > pause.Max {
				useless = 0
			}
			if useless++; useless == 1 {
				continue
			}
			if t.current.Load().token == "" { // the one before was refused as well
				t.set(&holding{problem: &delivery.Result{Class: delivery.Misconfigured, Detail: "the token is not accepted"}})
			}
			if retry.Sleep(ctx, pause.Delay(useless-1)) != nil {
				return
			}
		}
	}
}

// without is the result of deliveries without a token.
func without(err error) *delivery.Result {
	res := &delivery.Result{Class: delivery.Unreachable, Detail: err.Error()}
	if errors.Is(err, errKey) || sinkhttp.WrongSettings(err) {
		res.Class = delivery.Misconfigured
	}
	return res
}
