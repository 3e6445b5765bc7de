// Package smtp is the sink that sends jobs as messages of mail, to a server of submission or a relay.
package smtp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/render"
)

// Sink sends each job as a message to one recipient, over a bounded number of connections that are kept, and classifies what the
// server says (see classify).
//
// A message whose end was sent and got no answer may have been taken, and is sent again by the next attempt, with the same
// Message-ID. Before that it was certainly not taken: where a connection that was used before turns out to be dead, the
// message goes over a new one at once.
type Sink struct {
	base.Service[parts]
	config *Config
	hello  string // the name that it gives itself
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
}

// parts are what is made of the files and secrets that the configuration names.
type parts struct {
	*pool
	addr     string
	tls      *tls.Config // without the server's name; nil: connections are not encrypted
	password string
	form     *form
	secrets  *strings.Replacer
}

// Where is the server.
func (p parts) Where() string { return p.addr }

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, hello: c.Hello, dial: (&net.Dialer{}).DialContext}
	if s.hello == "" {
		if s.hello, _ = os.Hostname(); !isHost(s.hello) {
			s.hello = "localhost"
		}
	}
	return s, s.Open(host, base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt})
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := s.config
	p.addr, p.pool = c.Addr, &pool{}
	if c.TLS != noTLS {
		p.tls = r.TLS("", c.Certificates)
	}
	p.password = r.Secret("password", c.Password)
	p.secrets = strings.NewReplacer()
	if p.password != "" {
		p.secrets = strings.NewReplacer(p.password, "***")
	}
	texts := c.Texts
	texts.Text, texts.HTML = r.Secret("text", c.Text), r.Secret("html", c.HTML)
	p.form = newForm(r, &texts)
	return p
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) (res delivery.Result) {
	p := s.Now()
	m, err := p.form.message(job, time.Now())
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	r, f := s.send(limited, p, m)
	answered := f == nil
	at := ending
	if f != nil {
		at = f.stage
		r, answered = f.reply()
	}
	switch {
	case answered:
		res = s.answered(at, r)
	case ctx.Err() != nil:
		res = delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before " + s.config.Addr + " answered"}
	default:
		res = unanswered(f)
		res.Detail = s.describe(f, errors.Is(limited.Err(), context.DeadlineExceeded))
	}
	if shown != nil {
		shown.Request = p.secrets.Replace(m.String())
		if answered {
			shown.Answer = p.secrets.Replace(r.String())
		}
	}
	res.Detail = p.secrets.Replace(res.Detail)
	return res
}

// answered returns the result for what the server said.
func (s *Sink) answered(at stage, r reply) delivery.Result {
	res := classify(at, r, s.senderByJob(), s.config.RetryAfter)
	if res.Class == delivery.Delivered {
		if id := queueID(r.text); id != "" {
			res.Provider = &delivery.Provider{MessageID: id}
		}
		return res
	}
	res.Detail = r.String() + " from " + s.config.Addr
	res.Provider = &delivery.Provider{Code: cmp.Or(r.enhanced, strconv.Itoa(r.code))}
	return res
}

// senderByJob reports whether a job says the address that its message is sent from.
func (s *Sink) senderByJob() bool {
	t := &s.config.Texts
	from := cmp.Or(t.EnvelopeFrom, t.From)
	return from == "" || render.IsTemplate(from)
}

// send sends a message over an idle connection, or a new one.
func (s *Sink) send(ctx context.Context, p parts, m *message) (reply, *failure) {
	c := p.take(time.Now())
	for used := c != nil; ; used = false {
		if c == nil {
			var f *failure
			if c, f = s.connect(ctx, p); f != nil {
				return reply{}, f
			}
		}
		r, f := c.send(ctx, m)
		p.put(c, time.Now())
		if f == nil || !used || !f.stale() || ctx.Err() != nil {
			return r, f
		}
		s.Repeats.Add(1)
		c = nil
	}
}

// Check connects to the server, encrypts and logs in. No mail is sent.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	p := s.Now()
	c, f := s.connect(ctx, p)
	if f == nil {
		c.close()
		return nil
	}
	key := [...]string{connecting: "addr", securing: "tls", authenticating: "username"}[f.stage]
	if r, ok := f.reply(); ok {
		return fmt.Errorf("%s: %s", key, p.secrets.Replace(r.String()))
	}
	return fmt.Errorf("%s: %s", key, p.secrets.Replace(s.describe(f, errors.Is(ctx.Err(), context.DeadlineExceeded))))
}
