package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/config"
)

const (
	remoteWithin   = 15 * time.Second
	maxRemote      = 64 << 20 // of one answer
	maxTokenFile   = 4 << 10
	remotePage     = 1000
	apiPath        = "/api/v1"
	tokenFileStart = "file:"
)

// remote is the API of a console, as a store.
type remote struct {
	base   *url.URL
	token  config.Secret
	client *http.Client
}

// remote returns the console that the flags name.
func (c *cli) remote() (*remote, error) {
	base, err := url.Parse(c.server.address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" {
		return nil, config.Usagef("--server must be the address of a console, such as https://pacer.example.com or http://127.0.0.1:8080")
	}
	r := &remote{base: base, client: &http.Client{
		Timeout: remoteWithin, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a token is for one host
	}}
	if c.server.token == "" {
		return r, nil
	}
	if base.Scheme == "http" && !ownHost(base.Hostname()) {
		return nil, config.Usagef("--server %s: the token would be readable on the way; use https, or a tunnel to this machine", base.Host)
	}
	r.token, err = readToken(c.server.token)
	return r, err
}

// ownHost reports whether a host is this machine.
func ownHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// readToken reads the token of file:PATH. On the command line itself others would see it.
func readToken(text string) (config.Secret, error) {
	path, ok := strings.CutPrefix(text, tokenFileStart)
	if !ok {
		return "", config.Usagef("--token must be file:PATH of a file that has the token: whoever lists processes sees the command line")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", config.Usagef("--token: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	token := strings.TrimSpace(string(content))
	if err != nil || token == "" || len(content) > maxTokenFile || strings.ContainsAny(token, "\r\n") {
		return "", config.Usagef("--token: %s must hold one token, in one line of at most %d bytes", path, maxTokenFile)
	}
	return config.Secret(token), nil
}

// get asks for something. A path has its parts escaped.
func (r *remote) get(ctx context.Context, path string, query url.Values, into any) error {
	return r.call(ctx, http.MethodGet, path, query, nil, into)
}

// call makes one request, and reads its answer.
func (r *remote) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	address := strings.TrimSuffix(r.base.String(), "/") + apiPath + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return config.Usagef("--server: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if method != http.MethodGet {
		request.Header.Set("If-Match", "*") // a command says what is to be, whatever it was
	}
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token.Reveal())
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return fmt.Errorf("--server %s: no answer: %w", r.base.Host, innermost(err))
	}
	defer func() { _ = answer.Body.Close() }() // read as far as needed
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRemote+1))
	switch {
	case err != nil:
		return fmt.Errorf("--server %s: %w", r.base.Host, err)
	case len(text) > maxRemote:
		return fmt.Errorf("--server %s: an answer is longer than %d bytes", r.base.Host, maxRemote)
	case answer.StatusCode >= 300:
		return r.refused(answer, text)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("--server %s does not answer as a console does: %w", r.base.Host, err)
	}
	return nil
}

// refused is why a request was refused, in one line.
func (r *remote) refused(answer *http.Response, text []byte) error {
	var problem struct {
		Detail string
		Errors []struct{ Message, Location string }
	}
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("--server %s answers %s, which is not what a console says", r.base.Host, answer.Status)
	}
	why := problem.Detail
	for _, e := range problem.Errors {
		why += "; " + strings.TrimPrefix(e.Location+": ", ": ") + e.Message
	}
	if answer.StatusCode == http.StatusUnauthorized && r.token == "" { // the console tells programs of a header
		what, _, _ := strings.Cut(why, ";")
		why = what + "; give it with --token file:PATH"
	}
	if answer.StatusCode == http.StatusUnprocessableEntity {
		return config.Usagef("%s", why)
	}
	return &refusal{answer.StatusCode, why}
}

// refusal is why a console does not do something.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return r.why }

// innermost takes the address out of an error of a request: it stands before it.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		return asked.Err
	}
	return err
}
