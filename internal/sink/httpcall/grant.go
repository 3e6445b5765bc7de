package httpcall

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/token"
)

// maxTokenAnswer bounds the answer of a token endpoint, in bytes.
const maxTokenAnswer = 64 << 10

// TokenRequest is a request for an access token (RFC 6749).
type TokenRequest struct {
	URL  string
	Form url.Values
	User *url.Userinfo // nil: the credentials are in the form
	Key  string        // of the setting that an error is about
	Hint string        // what to do when the endpoint refuses
}

// FetchToken gets an access token over a connection as those to the destination. Errors are of type token.Error and begin
// with the key; they repeat nothing that was sent or answered, but the code of an error.
func (c *Client) FetchToken(ctx context.Context, r TokenRequest) (token.Token, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, strings.NewReader(r.Form.Encode()))
	if err != nil {
		return token.Token{}, &token.Error{Class: delivery.Misconfigured, Detail: r.Key + ": not a URL"}
	}
	req.Header.Set(keyContentType, "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.Header[keyUserAgent] = c.agent
	if r.User != nil {
		password, _ := r.User.Password()
		req.SetBasicAuth(r.User.Username(), password)
	}
	where, begun := req.URL.Host, time.Now()
	failed := func(err error) error {
		e := &token.Error{Class: delivery.Unreachable, Detail: r.Key + ": " + c.Scrub(describe(err, where, time.Since(begun), false))}
		if WrongSettings(err) {
			e.Class = delivery.Misconfigured
		}
		return e
	}
	resp, err := roundTrip(c.Trusted, req)
	if err != nil {
		return token.Token{}, failed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	if err != nil {
		return token.Token{}, failed(err)
	}
	t, e := readToken(Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}, where, r.Hint)
	if e != nil {
		e.Detail = r.Key + ": " + e.Detail
		return token.Token{}, e
	}
	return t, nil
}

// readToken reads the answer of a token endpoint. Of one that refuses, only the code of the error is told.
func readToken(a Answer, where, hint string) (token.Token, *token.Error) {
	var answer struct {
		AccessToken string      `json:"access_token"`
		TokenType   string      `json:"token_type"`
		ExpiresIn   json.Number `json:"expires_in"` // some send it as text
		Error       any         `json:"error"`      // a code; some have other things there
	}
	err := json.Unmarshal(a.Body, &answer)
	e := &token.Error{
		Class: delivery.Misconfigured, Status: a.Status, Detail: fmt.Sprintf("HTTP %d %s from %s", a.Status, http.StatusText(a.Status), where),
	}
	switch res := a.ByStatus(time.Now()); {
	case res.Class == delivery.Temporary || res.Class == delivery.Throttled:
		e.Class, e.RetryAfter = delivery.Unreachable, res.RetryAfter
	case res.Class != delivery.Delivered:
		if code, _ := answer.Error.(string); code != "" && len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
			e.Detail += ", " + code
		}
		e.Detail += ": " + hint
	case err != nil || answer.AccessToken == "" || !httpguts.ValidHeaderFieldValue(answer.AccessToken) || len(answer.AccessToken) > MaxHeaderBytes:
		e.Detail += " has no access token"
	case answer.TokenType != "" && !strings.EqualFold(answer.TokenType, "bearer"):
		e.Detail += " is a token of another type than Bearer"
	default:
		seconds, _ := strconv.ParseFloat(answer.ExpiresIn.String(), 64)
		return token.Token{Value: answer.AccessToken, Life: time.Duration(min(max(0, seconds), 1e9) * float64(time.Second))}, nil
	}
	return token.Token{}, e
}
