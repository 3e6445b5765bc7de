package sinktest

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/xdg-go/scram"
)

// Who may log in to a mail server.
const (
	MailUser     = "pacer"
	MailPassword = "s3cret-of-mail"
)

// Mail is a message that a server got, up to its end.
type Mail struct {
	From, To   string
	UTF8       bool
	User       string
	Encrypted  bool
	Connection int // from 1
	Data       []byte
}

// MailTreatment is how a server treats a message. Fields that are not set mean the usual.
type MailTreatment struct {
	Recipient error // the answer to RCPT: see Refusal
	Message   error // to the message
	// Hang and Reset are instead of an answer to the message.
	Hang, Reset bool
	Read        func() // is called when the message has been read to its end, before the answer
}

// SMTPOptions are what a mail server does.
type SMTPOptions struct {
	Implicit   bool     // it speaks TLS from the first byte on
	Plain      bool     // it offers no encryption
	Open       bool     // nobody has to log in
	UTF8       bool     // it offers SMTPUTF8
	Size       int64    // of the largest message that it takes; 0: any
	Mechanisms []string // of authentication; nil: PLAIN

	Sender func(from string, connection int) error     // the answer to MAIL
	Treat  func(recipient string, n int) MailTreatment // is asked when a recipient is named, the n-th time
}

// SMTP is a mail server. It speaks SMTP with STARTTLS, has clients log in, counts by recipient, and ends with the test.
type SMTP struct {
	Addr   string
	CAFile string

	options SMTPOptions

	mu       sync.Mutex
	conns    []net.Conn     // all that there were
	numbers  map[string]int // of connections, by their remote address
	named    map[string]int // recipients
	messages []Mail
}

// Refusal is an answer that refuses. The enhanced code may be missing.
func Refusal(code int, enhanced [3]int, text string) error {
	e := smtp.EnhancedCode(enhanced)
	if enhanced == [3]int{} {
		e = smtp.NoEnhancedCode
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: e, Message: text}
}

// StartSMTP starts a mail server.
func StartSMTP(t testing.TB, opt SMTPOptions) *SMTP {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &SMTP{Addr: l.Addr().String(), options: opt, numbers: map[string]int{}, named: map[string]int{}}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return s.session(c), nil }))
	server.Domain, server.EnableSMTPUTF8, server.MaxMessageBytes, server.ErrorLog = "mail.example.com", opt.UTF8, opt.Size, log.New(io.Discard, "", 0)
	var listener net.Listener = &mailListener{l, s}
	if !opt.Plain {
		var cert tls.Certificate
		cert, s.CAFile = Certificate(t)
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	}
	if opt.Implicit {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		_ = l.Close() // if it did not serve yet
		serving.Wait()
	})
	return s
}

// mailListener numbers connections.
type mailListener struct {
	net.Listener
	server *SMTP
}

func (l *mailListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	s.numbers[c.RemoteAddr().String()] = len(s.conns)
	return c, nil
}

// Connections returns how many connections there were.
func (s *SMTP) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Drop breaks all connections off.
func (s *SMTP) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		Reset(c)
	}
}

// Named returns how often a recipient was named.
func (s *SMTP) Named(recipient string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named[recipient]
}

// Messages returns the messages that were read to their end, in order, with any answer.
func (s *SMTP) Messages() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

func (s *SMTP) session(c *smtp.Conn) *mailSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, encrypted := c.TLSConnectionState()
	return &mailSession{server: s, conn: c, number: s.numbers[c.Conn().RemoteAddr().String()], encrypted: encrypted}
}

// mailSession is one connection.
type mailSession struct {
	server    *SMTP
	conn      *smtp.Conn
	number    int
	encrypted bool
	user      string

	current Mail
	treated MailTreatment
}

func (m *mailSession) Reset()        { m.current, m.treated = Mail{}, MailTreatment{} }
func (m *mailSession) Logout() error { return nil }

func (m *mailSession) AuthMechanisms() []string {
	if m.server.options.Mechanisms != nil || m.server.options.Open {
		return m.server.options.Mechanisms
	}
	return []string{sasl.Plain}
}

func (m *mailSession) Auth(mechanism string) (sasl.Server, error) {
	login := func(user, password string) error {
		if user != MailUser || password != MailPassword {
			return smtp.ErrAuthFailed
		}
		m.user = user
		return nil
	}
	switch {
	case !slices.Contains(m.AuthMechanisms(), mechanism):
	case mechanism == sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return login(user, password) }), nil
	case mechanism == sasl.Login:
		return &loginServer{login: login}, nil
	case mechanism == "SCRAM-SHA-256":
		return newSCRAMServer(login)
	case mechanism == "XOAUTH2":
		return tokenServer(login), nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

func (m *mailSession) Mail(from string, opts *smtp.MailOptions) error {
	if m.user == "" && !m.server.options.Open {
		return Refusal(530, [3]int{5, 7, 0}, "log in first")
	}
	m.current = Mail{From: from, UTF8: opts.UTF8, User: m.user, Encrypted: m.encrypted, Connection: m.number}
	if m.server.options.Sender != nil {
		return m.server.options.Sender(from, m.number)
	}
	return nil
}

func (m *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s := m.server
	s.mu.Lock()
	s.named[to]++
	n := s.named[to]
	s.mu.Unlock()
	m.current.To = to
	if s.options.Treat != nil {
		m.treated = s.options.Treat(to, n)
	}
	return m.treated.Recipient
}

func (m *mailSession) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s := m.server
	m.current.Data = data
	s.mu.Lock()
	s.messages = append(s.messages, m.current)
	s.mu.Unlock()
	if m.treated.Read != nil {
		m.treated.Read()
	}
	switch {
	case m.treated.Hang:
		_, _ = m.conn.Conn().Read(make([]byte, 1)) // a client that waits for an answer sends nothing
	case m.treated.Reset:
		raw := m.conn.Conn()
		if encrypted, ok := raw.(*tls.Conn); ok {
			raw = encrypted.NetConn()
		}
		Reset(raw)
	case m.treated.Message != nil:
		return m.treated.Message
	}
	return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: "Ok: queued as 4F7AB12"}
}

// loginServer is the mechanism LOGIN.
type loginServer struct {
	login func(user, password string) error
	asked int
	user  string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.asked++
	switch l.asked {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.login(l.user, string(response))
}

// tokenServer is the mechanism XOAUTH2, with the password for the token.
type tokenServer func(user, password string) error

func (login tokenServer) Next(response []byte) (challenge []byte, done bool, err error) {
	if string(response) != "user="+MailUser+"\x01auth=Bearer "+MailPassword+"\x01\x01" {
		return nil, false, smtp.ErrAuthFailed
	}
	return nil, true, login(MailUser, MailPassword)
}

// scramServer is the mechanism SCRAM-SHA-256.
type scramServer struct {
	talk  *scram.ServerConversation
	login func(user, password string) error
	begun bool
}

func newSCRAMServer(login func(user, password string) error) (sasl.Server, error) {
	client, err := scram.SHA256.NewClient(MailUser, MailPassword, "")
	if err != nil {
		return nil, err
	}
	known := client.GetStoredCredentials(scram.KeyFactors{Salt: "salt of this server", Iters: 4096})
	server, err := scram.SHA256.NewServer(func(user string) (scram.StoredCredentials, error) {
		if user != MailUser {
			return scram.StoredCredentials{}, errors.New("unknown user")
		}
		return known, nil
	})
	if err != nil {
		return nil, err
	}
	return &scramServer{talk: server.NewConversation(), login: login}, nil
}

func (s *scramServer) Next(response []byte) (challenge []byte, done bool, err error) {
	if !s.begun && len(response) == 0 {
		s.begun = true
		return nil, false, nil
	}
	if s.talk.Done() { // the client has seen that the server knows the password, too
		return nil, true, s.login(MailUser, MailPassword)
	}
	text, err := s.talk.Step(string(response))
	if err != nil {
		return nil, false, smtp.ErrAuthFailed
	}
	return []byte(text), false, nil
}
