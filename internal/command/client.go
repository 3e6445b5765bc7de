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
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
)

const (
	remoteWithin   = 30 * time.Second // no answer of a console takes longer: a search for a job may take 20 s
	bulkWithin     = 5 * time.Minute  // a change of 100,000 campaigns takes more than one
	bulkPath       = "/bulk-changes"
	maxRemote      = 64 << 20 // of one answer
	maxTokenFile   = 4 << 10
	pageSize       = 1000
	apiPath        = "/api/v1"
	tokenFileStart = "file:"
)

// server is the console that commands work over, instead of the services that the configuration names.
type server struct{ address, token string }

// withServer is for commands that ask the API. It adds the flags that name a console. Without one, the command needs these parts of the
// configuration, by default the database.
func (c *cli) withServer(cmd *cobra.Command, needs ...config.Section) *cobra.Command {
	cmd.PreRun = func(*cobra.Command, []string) {
		if c.needs = needs; len(needs) == 0 {
			c.needs = []config.Section{config.NeedPostgres}
		}
	}
	cmd.Flags().StringVar(&c.server.address, "server", "", "`URL` of a console to work over, such as https://pacer.example.com, instead of the database")
	cmd.Flags().StringVar(&c.server.token, "token", "", "token for --server: `file:PATH` of a file that has it")
	return cmd
}

// client asks the API of a console, or that of this process.
type client struct {
	base    *url.URL
	address string // of a console; "" for this process
	token   config.Secret
	http    *http.Client
}

// open makes the client of the console that the flags name. Without one, this process has the API itself.
func (c *cli) open() (err error) {
	if c.server.address != "" {
		c.api, err = c.remote()
		return err
	}
	if c.server.token != "" {
		return config.Usagef("--token goes with --server")
	}
	s, err := c.services(c.needs...)
	if err != nil {
		return err
	}
	transport, end, err := s.Local(c.who, slices.Contains(c.needs, config.NeedPostgres))
	if err != nil {
		return err
	}
	c.atEnd = append(c.atEnd, end, s.Close)
	c.api = &client{base: &url.URL{Scheme: "http", Host: "localhost"}, http: &http.Client{Transport: transport, CheckRedirect: stay}}
	return nil
}

// remote returns the client of the console that the flags name.
func (c *cli) remote() (*client, error) {
	base, err := url.Parse(c.server.address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" {
		return nil, config.Usagef("--server must be the address of a console, such as https://pacer.example.com or http://127.0.0.1:8080")
	}
	r := &client{base: base, address: base.Host, http: &http.Client{CheckRedirect: stay}}
	if c.server.token == "" {
		return r, nil
	}
	if base.Scheme == "http" && !onThisMachine(base.Host) {
		return nil, config.Usagef("--server %s: the token would be readable on the way; use https, or a tunnel to this machine", base.Host)
	}
	r.token, err = readToken(c.server.token)
	return r, err
}

// stay follows no redirect: a token is for one host, and a change for one path.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// pathOf joins the parts of a path. A part that is . or .. is escaped as well: otherwise the request would be for the path above it.
func pathOf(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		if part = url.PathEscape(part); part == "." || part == ".." {
			part = strings.ReplaceAll(part, ".", "%2E")
		}
		b.WriteString("/" + part)
	}
	return b.String()
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
func (c *cli) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.call(ctx, http.MethodGet, path, query, nil, into)
}

// call asks the API. The first call makes the client. Once the command is interrupted, an error is about that: it is no service's fault.
func (c *cli) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if c.api == nil {
		if err := c.open(); err != nil {
			return err
		}
	}
	err := c.api.call(ctx, method, path, query, body, into)
	switch {
	case err == nil || !errors.Is(ctx.Err(), context.Canceled):
		return err
	case method == http.MethodGet:
		return ctx.Err()
	}
	return errors.New("interrupted; the change may have been made all the same")
}

// ask asks the API for something, and prints it.
func ask[T any](ctx context.Context, c *cli, method, path string, query url.Values, body any, text func(*printer, *T)) error {
	what := new(T)
	if err := c.call(ctx, method, path, query, body, what); err != nil {
		return err
	}
	return c.printTable(what, func(p *printer) { text(p, what) })
}

// call makes one request, and reads its answer.
func (r *client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
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
	if r.address != "" { // services have bounds of their own
		within := remoteWithin
		if path == bulkPath {
			within = bulkWithin
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
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
	answer, err := r.http.Do(request)
	if err != nil {
		if asked, ok := errors.AsType[*url.Error](err); ok && r.address == "" {
			return asked.Err // of the service that this process asks
		}
		return fmt.Errorf("--server %s: no answer: %w", r.address, innermost(err))
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
func (r *client) refused(answer *http.Response, text []byte) error {
	var problem struct {
		Type   string
		Detail string
		Errors []struct{ Message, Location string }
	}
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("--server %s answers %s, which is not what a console says", r.base.Host, answer.Status)
	}
	why := problem.Detail
	for i, e := range problem.Errors { // these say more than that the request is wrong
		name := e.Location[strings.IndexByte(e.Location, '.')+1:] // of one such as body.rate
		if text := strings.TrimPrefix(name+": ", ": ") + strings.Replace(e.Message, "expected string to be", "must be", 1); i == 0 {
			why = text
		} else {
			why += "; " + text
		}
	}
	if answer.StatusCode == http.StatusUnauthorized && r.token == "" { // the console tells programs of a header
		what, _, _ := strings.Cut(why, ";")
		why = what + "; give it with --token file:PATH"
	}
	kind := problem.Type[strings.LastIndex(problem.Type, ":")+1:]
	if answer.StatusCode == http.StatusUnprocessableEntity || kind == "exists" || kind == "in-use" {
		return config.Usagef("%s", why)
	}
	return &refusal{answer.StatusCode, kind, why}
}

// refusal is why a console does not do something.
type refusal struct {
	status    int
	kind, why string
}

func (r *refusal) Error() string { return r.why }

// refusedAs reports whether a console does not do something for a reason of this kind.
func refusedAs(err error, kind string) bool {
	var r *refusal
	return errors.As(err, &r) && r.kind == kind
}

// pages asks for all pages of a list, which the answers have under its name.
func pages[T any](ctx context.Context, c *cli, name string, query url.Values, do func(*T)) error {
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		var page map[string]json.RawMessage
		var list []*T
		var next string
		if err := c.get(ctx, "/"+name, query, &page); err != nil {
			return err
		}
		if err := json.Unmarshal(page[name], &list); err != nil {
			return fmt.Errorf("the console lists no %s: %w", name, err)
		}
		for _, one := range list {
			do(one)
		}
		if _ = json.Unmarshal(page["next"], &next); next == "" || len(list) == 0 { // absent on the last page
			return nil
		}
		query.Set("after", next)
	}
}

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

// deletion makes a command that deletes one thing of a kind, which the API shows as a T. more is what is said of one that was deleted.
func deletion[T any](c *cli, kind, short string, how url.Values, more func(was *T) string) *cobra.Command {
	var yes bool
	cmd := c.ofID("delete", short, func(ctx context.Context, id string) error {
		if err := c.confirm(ctx, yes, "delete "+kind+" "+id); err != nil {
			return err
		}
		was, path := new(T), pathOf(kind+"s", id)
		if err := c.get(ctx, path, nil, was); err != nil {
			return err
		}
		if err := c.call(ctx, http.MethodDelete, path, how, nil, nil); err != nil {
			return err
		}
		return c.print(was, func(p *printer) { p.line("deleted %s %s%s", kind, id, more(was)) })
	})
	yesFlag(cmd, &yes)
	return c.withServer(cmd)
}
