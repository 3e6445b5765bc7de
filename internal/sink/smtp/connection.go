package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"
)

// maxReply bounds what a server may say between two things that it is told, in bytes.
const maxReply = 64 << 10

var (
	errLongReply = errors.New("it says too much")
	errNoTLS     = errors.New("it offers no encryption (STARTTLS)")
	errNoAuth    = errors.New("it offers no authentication that can be used")
)

// line is a connection below its encryption. It bounds the bytes that it reads between two writes.
type line struct {
	net.Conn
	left int // bytes; owned by the goroutine that uses the connection
}

func (l *line) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLongReply
	}
	n, err := l.Conn.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}

func (l *line) Write(b []byte) (int, error) {
	l.left = maxReply
	return l.Conn.Write(b)
}

// conn is a connection to the server: greeted, encrypted and authenticated. It is for one goroutine at a time.
type conn struct {
	client *gosmtp.Client
	line   *line
	born   time.Time
	used   time.Time // when the server answered last

	messages int
	dirty    bool // a transaction was begun, and not ended
	broken   bool // not to be used any more
}

// connect makes a connection, as long as ctx lasts.
func (s *Sink) connect(ctx context.Context, p parts) (*conn, *failure) {
	raw, err := s.dial(ctx, "tcp", s.config.Addr)
	if err != nil {
		return nil, &failure{stage: connecting, err: err}
	}
	c := &conn{line: &line{Conn: raw, left: maxReply}, born: time.Now()}
	done := c.limit(ctx)
	f := s.prepare(ctx, c, p)
	done()
	if f == nil && c.broken {
		f = &failure{stage: connecting, err: ctx.Err()}
	}
	if f != nil {
		_ = raw.Close()
		return nil, f
	}
	c.used = time.Now()
	return c, nil
}

// prepare greets the server, has the connection encrypted and logs in.
func (s *Sink) prepare(ctx context.Context, c *conn, p parts) *failure {
	host, _, _ := net.SplitHostPort(s.config.Addr) // checked before
	stream, secure := net.Conn(c.line), p.tls.Clone()
	if secure != nil {
		secure.ServerName = strings.Trim(host, "[]")
	}
	if s.config.TLS == implicit {
		encrypted := tls.Client(c.line, secure)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return &failure{stage: securing, err: err}
		}
		stream = encrypted
	}
	var err error
	if c.client, err = gosmtp.NewClient(stream, host); err != nil {
		return &failure{stage: connecting, err: err}
	}
	c.client.SkipSMTPUTF8(true)
	if err := c.client.Hello(s.hello); err != nil {
		return &failure{stage: connecting, err: err}
	}
	if s.config.TLS == startTLS {
		if offered, _ := c.client.Extension("STARTTLS"); !offered {
			return &failure{stage: securing, err: errNoTLS}
		}
		if err := c.client.StartTLS(secure); err != nil {
			return &failure{stage: securing, err: err}
		}
	}
	if s.config.Username == "" {
		return nil
	}
	auth, err := s.config.mechanism(c.client, host, p.password)
	if err == nil {
		err = c.client.Auth(auth)
	}
	if err != nil {
		return &failure{stage: authenticating, err: err}
	}
	return nil
}

// mechanism chooses the mechanism of authentication. The connection is encrypted.
func (c *Config) mechanism(client *gosmtp.Client, host, password string) (gosmtp.Auth, error) {
	_, offered := client.Extension("AUTH")
	list := strings.Fields(strings.ToLower(offered))
	mechanism := c.Auth
	if mechanism == authAuto {
		for _, m := range []string{authSCRAM, authPlain, authLogin} {
			if slices.Contains(list, m) {
				mechanism = m
				break
			}
		}
	}
	if !slices.Contains(list, mechanism) {
		return nil, fmt.Errorf("%w: %.60q", errNoAuth, offered)
	}
	switch mechanism {
	case authSCRAM:
		return gosmtp.ScramSHA256Auth(c.Username, password), nil
	case authLogin:
		return gosmtp.LoginAuth(c.Username, password, host, false), nil
	case authToken:
		return gosmtp.XOAuth2Auth(c.Username, password), nil
	}
	return gosmtp.PlainAuth("", c.Username, password, host, false), nil
}

// limit has everything on the connection fail when ctx ends, until done is called. The connection is broken then.
func (c *conn) limit(ctx context.Context) (done func()) {
	stop := context.AfterFunc(ctx, func() { _ = c.line.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if !stop() {
			c.broken = true
		}
	}
}

// send sends a message, and returns what the server says to it.
func (c *conn) send(ctx context.Context, m *message) (said reply, f *failure) {
	defer c.limit(ctx)()
	said, f = c.transact(m)
	if c.used = time.Now(); f != nil && f.closes() {
		c.broken = true
	}
	c.messages++
	return said, f
}

// transact is one transaction of mail.
func (c *conn) transact(m *message) (said reply, f *failure) {
	if c.dirty {
		if err := c.client.Reset(); err != nil {
			return said, &failure{stage: announcing, err: err}
		}
	}
	c.dirty = true
	c.client.SkipSMTPUTF8(!m.utf8)
	if err := c.client.Mail(m.from); err != nil {
		return said, &failure{stage: announcing, err: err}
	}
	if err := c.client.Rcpt(m.to); err != nil {
		return said, &failure{stage: addressing, err: err}
	}
	w, err := c.client.Data()
	if err != nil {
		return said, &failure{stage: beginning, err: err}
	}
	if _, err := w.Write(m.data); err != nil { // its end was not sent
		c.broken = true
		if code, text, none := c.client.Text.ReadResponse(0); none == nil { // the server has said why it ends the connection
			err = &textproto.Error{Code: code, Msg: text}
		}
		return said, &failure{stage: beginning, err: err}
	}
	if err = w.Close(); err != nil {
		f = &failure{stage: ending, err: err}
		if r, ok := f.reply(); ok && r.code/100 == 2 { // a client is to look at the first digit alone
			c.dirty = false
			return r, nil
		}
		return said, f
	}
	c.dirty = false
	said = reply{code: 250}
	if answered, ok := w.(*gosmtp.DataCloser); ok {
		said = parseReply(said.code, answered.ServerResponse())
	}
	return said, nil
}

// goodbye is how long the end of a connection may take.
const goodbye = time.Second

// close ends the connection, with a word if it still works. The answer is not waited for.
func (c *conn) close() {
	if !c.broken {
		_ = c.line.SetDeadline(time.Now().Add(goodbye))
		_, _ = c.client.Text.Cmd("QUIT")
	}
	_ = c.client.Close()
}

// Bounds on the use of a connection: later, the server or a firewall may have ended it.
const (
	maxIdle     = 30 * time.Second // without a message
	maxAge      = 5 * time.Minute
	maxMessages = 100
)

// pool has the idle connections. With those in use, they are at most as many as messages are sent at once, since a connection takes one
// after the other. The one that was used last is used next, so that surplus ones get old. Old ones are closed when one is needed.
//
// Safe for concurrent use. A connection that was taken belongs to the caller.
type pool struct {
	mu    sync.Mutex
	idle  []*conn
	ended bool
}

// take returns an idle connection; nil if there is none.
func (p *pool) take(now time.Time) (c *conn) {
	p.mu.Lock()
	var old []*conn
	p.idle = slices.DeleteFunc(p.idle, func(c *conn) bool {
		over := c.done(now)
		if over {
			old = append(old, c)
		}
		return over
	})
	if last := len(p.idle) - 1; last >= 0 {
		c, p.idle = p.idle[last], p.idle[:last]
	}
	p.mu.Unlock()
	closeAll(old)
	return c
}

// put gives a connection back, or closes it.
func (p *pool) put(c *conn, now time.Time) {
	p.mu.Lock()
	keep := !p.ended && !c.done(now)
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// done reports whether a connection has served its time.
func (c *conn) done(now time.Time) bool {
	return c.broken || now.Sub(c.used) >= maxIdle || now.Sub(c.born) >= maxAge || c.messages >= maxMessages
}

// Close closes the idle connections, and those in use after use.
func (p *pool) Close() {
	p.mu.Lock()
	old := p.idle
	p.idle, p.ended = nil, true
	p.mu.Unlock()
	closeAll(old)
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
