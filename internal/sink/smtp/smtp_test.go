package smtp

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a sink for the stand-in until the test ends.
func open(t *testing.T, s *sinktest.SMTP, change func(*Config)) *Sink {
	t.Helper()
	c := Default()
	c.Addr, c.CAFile, c.Username, c.Password, c.Timeout = s.Addr, s.CAFile, sinktest.MailUser, sinktest.MailPassword, 20*time.Second
	c.From, c.Subject, c.Text = "News <news@example.com>", "Hello", "{{ .Payload }}"
	if change != nil {
		change(c)
	}
	k, err := New(c, base.Host{Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, k, err)
}

func unencrypted(c *Config) { c.TLS, c.CAFile, c.Username, c.Password = noTLS, "", "", "" }

// TestDelivered: with both kinds of encryption and each mechanism, the message arrives once and unchanged.
func TestDelivered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options sinktest.SMTPOptions
		change  func(*Config)
		user    string
	}{
		"starttls":          {user: sinktest.MailUser},
		"implicit":          {sinktest.SMTPOptions{Implicit: true}, func(c *Config) { c.TLS = implicit }, sinktest.MailUser},
		"unencrypted":       {sinktest.SMTPOptions{Plain: true, Open: true}, unencrypted, ""},
		"nobody to be":      {sinktest.SMTPOptions{Open: true}, func(c *Config) { c.Username, c.Password = "", "" }, ""},
		"the best there is": {sinktest.SMTPOptions{Mechanisms: []string{"LOGIN", "PLAIN", "SCRAM-SHA-256"}}, nil, sinktest.MailUser},
		"login":             {sinktest.SMTPOptions{Mechanisms: []string{"LOGIN"}}, nil, sinktest.MailUser},
		"plain, if asked":   {sinktest.SMTPOptions{Mechanisms: []string{"PLAIN", "SCRAM-SHA-256"}}, func(c *Config) { c.Auth = authPlain }, sinktest.MailUser},
		"xoauth2":           {sinktest.SMTPOptions{Mechanisms: []string{"XOAUTH2"}}, func(c *Config) { c.Auth = authToken }, sinktest.MailUser},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sinktest.StartSMTP(t, tt.options)
			k := open(t, s, tt.change)
			if err := k.Check(t.Context()); err != nil || len(s.Messages()) != 0 {
				t.Fatalf("%v, %d messages", err, len(s.Messages()))
			}
			res := k.Deliver(t.Context(), job("Ann <ann@example.org>", "one\n.\n..two\nMAIL FROM:<x@y>\n"), nil)
			if res.Class != delivery.Delivered || res.Provider.MessageID != "4F7AB12" {
				t.Fatalf("%+v", res)
			}
			got := s.Messages()
			if len(got) != 1 || got[0].From != "news@example.com" || got[0].To != "ann@example.org" || got[0].User != tt.user || got[0].Encrypted == tt.options.Plain {
				t.Fatalf("%+v", got)
			}
			if !strings.HasSuffix(string(got[0].Data), "\r\n\r\none\r\n.\r\n..two\r\nMAIL FROM:<x@y>\r\n") {
				t.Errorf("%q", got[0].Data)
			}
		})
	}
}

// TestMisconfigured: trouble with credentials and settings is told so, and a check names the setting.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	s := sinktest.StartSMTP(t, sinktest.SMTPOptions{Sender: func(from string, _ int) error {
		if from == "other@example.com" {
			return sinktest.Refusal(553, [3]int{5, 7, 1}, "not your address")
		}
		return nil
	}})
	other := sinktest.StartSMTP(t, sinktest.SMTPOptions{Plain: true, Mechanisms: []string{"CRAM-MD5"}})
	for _, tt := range []struct {
		change      func(*Config)
		check, said string
	}{
		{func(c *Config) { c.Password = "not-" + sinktest.MailPassword }, "username: 535 5.7.8", "535 5.7.8 Authentication failed"},
		{func(c *Config) { c.Username, c.Password = "", "" }, "", "530 5.7.0 log in first"},
		{func(c *Config) { c.Addr = other.Addr }, "tls: " + other.Addr + ": it offers no encryption", "it offers no encryption (STARTTLS)"},
		{func(c *Config) { c.CAFile = "" }, "tls: ", "certificate"},
		{func(c *Config) { c.TLS = implicit }, "tls: ", "first record does not look like a TLS handshake"},
		{func(c *Config) { c.Auth = authToken }, "username: " + s.Addr + `: it offers no authentication that can be used: "PLAIN"`, "it offers no authentication"},
		{func(c *Config) { c.From = "other@example.com" }, "", "553 5.7.1 not your address"},
	} {
		k := open(t, s, tt.change)
		if res := k.Deliver(t.Context(), job("ann@example.org", "x"), nil); res.Class != delivery.Misconfigured || !strings.Contains(res.Detail, tt.said) {
			t.Errorf("%s: %+v", tt.said, res)
		}
		if err := k.Check(t.Context()); (err == nil) != (tt.check == "") || err != nil && !strings.HasPrefix(err.Error(), tt.check) {
			t.Errorf("%v, want %s", err, tt.check)
		}
	}
	if n := len(s.Messages()); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// TestConnectionsAreKept: messages share as many connections as are sent at once, each for up to maxMessages. Refused recipients end no
// connection. No message is lost or sent twice when a server ends idle connections.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	s := sinktest.StartSMTP(t, sinktest.SMTPOptions{Treat: func(recipient string, _ int) (how sinktest.MailTreatment) {
		if strings.HasPrefix(recipient, "gone") {
			how.Recipient = sinktest.Refusal(550, [3]int{5, 1, 1}, "no such user")
		}
		return how
	}})
	k := open(t, s, nil)
	var calls errgroup.Group
	calls.SetLimit(2)
	for i := range 2*maxMessages + 40 {
		calls.Go(func() error {
			name, want := "ann", delivery.Delivered
			if i%3 == 0 {
				name, want = "gone", delivery.Rejected
			}
			if res := k.Deliver(t.Context(), job(fmt.Sprintf("%s%d@example.org", name, i), "x"), nil); res.Class != want {
				t.Errorf("%s: %+v", name, res)
			}
			return nil
		})
	}
	_ = calls.Wait()
	if n := s.Connections(); n < 2 || n > 4 {
		t.Errorf("%d connections", n)
	}
	before := s.Connections()
	s.Drop()
	for i := range 4 {
		sinktest.Deliver(t, k, job(fmt.Sprintf("bob%d@example.org", i), "x"), delivery.Delivered)
	}
	if n := s.Connections() - before; n < 1 || n > 2 || k.Repeats.Load() < 1 || k.Repeats.Load() > 2 {
		t.Errorf("%d connections, %d messages went over another one", n, k.Repeats.Load())
	}
	var got []string
	for _, m := range s.Messages() {
		got = append(got, m.To)
	}
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); n != len(got) || n != 164 {
		t.Errorf("%d messages, to %d", len(got), n)
	}
}

// TestNeeds: a server judges what it cannot take, and is told of an address that is not ASCII.
func TestNeeds(t *testing.T) {
	t.Parallel()
	limited := sinktest.StartSMTP(t, sinktest.SMTPOptions{Size: 2000})
	able := sinktest.StartSMTP(t, sinktest.SMTPOptions{UTF8: true})
	big := strings.Repeat("x", 3000)
	if res := open(t, limited, nil).Deliver(t.Context(), job("ann@example.org", big), nil); res.Class != delivery.Permanent || !strings.HasPrefix(res.Detail, "552 5.3.4") {
		t.Errorf("%+v", res)
	}
	for _, to := range []string{"änn@example.org", "ann@example.org"} {
		if res := open(t, able, nil).Deliver(t.Context(), job(to, big), nil); res.Class != delivery.Delivered {
			t.Errorf("%s: %+v", to, res)
		}
	}
	if got := able.Messages(); len(limited.Messages()) != 0 || len(got) != 2 || !got[0].UTF8 || got[1].UTF8 {
		t.Errorf("%+v", got)
	}
}

// TestSecretsThatChange: another password means other connections.
func TestSecretsThatChange(t *testing.T) {
	t.Parallel()
	s := sinktest.StartSMTP(t, sinktest.SMTPOptions{})
	password := sinktest.MailPassword
	k := open(t, s, func(c *Config) {
		c.SecretFrom("password", func() (string, error) { return password, nil })
	})
	for _, p := range []string{sinktest.MailPassword, "wrong", sinktest.MailPassword} {
		password = p
		k.Reread()
		if res := k.Deliver(t.Context(), job("ann@example.org", "x"), nil); (res.Class == delivery.Delivered) != (p != "wrong") {
			t.Fatalf("%s: %+v", p, res)
		}
	}
	if got := s.Messages(); len(got) != 2 || got[0].Connection == got[1].Connection {
		t.Errorf("%+v", got)
	}
}

// TestTry shows the message and the answer, and no secret.
func TestTry(t *testing.T) {
	t.Parallel()
	s := sinktest.StartSMTP(t, sinktest.SMTPOptions{Treat: func(string, int) sinktest.MailTreatment {
		return sinktest.MailTreatment{Message: sinktest.Refusal(554, [3]int{5, 6, 0}, "what is "+sinktest.MailPassword)}
	}})
	var shown base.Exchange
	res := open(t, s, nil).Deliver(t.Context(), job("ann@example.org", "about "+sinktest.MailPassword+strings.Repeat("!", 9000)), &shown)
	request, answer := shown.Request, shown.Answer
	if res.Class != delivery.Permanent || answer != "554 5.6.0 what is ***" || strings.Contains(request+res.Detail, sinktest.MailPassword) || res.Provider.Code != "5.6.0" {
		t.Errorf("%+v, %s", res, answer)
	}
	for _, want := range []string{"MAIL FROM:<news@example.com>\nRCPT TO:<ann@example.org>\nDATA\n", "Subject: Hello\n", "\n\nabout ***!", " bytes)"} {
		if !strings.Contains(request, want) {
			t.Errorf("%q lacks %q", request, want)
		}
	}
	shown = base.Exchange{}
	res = open(t, s, nil).Deliver(t.Context(), job("", "x"), &shown)
	request, answer = shown.Request, shown.Answer
	if res.Class != delivery.Permanent || request != "" || answer != "" {
		t.Errorf("%+v, %s, %s", res, request, answer)
	}
}

// TestATextOfAFile: one that is no template is named.
func TestATextOfAFile(t *testing.T) {
	c := Default()
	c.Addr, c.From, c.Subject, c.HTML = "smtp.example.com:587", "news@example.com", "x", "as it was"
	c.SecretFrom("html", func() (string, error) { return "{{ nothing }}", nil })
	if _, err := New(c, base.Host{}); err == nil || !strings.HasPrefix(err.Error(), "html: line 1: ") {
		t.Error(err)
	}
}

// speaking starts a server that says what it is told, and no TLS.
func speaking(t *testing.T, serve func(c net.Conn)) *sinktest.SMTP {
	t.Helper()
	return &sinktest.SMTP{Addr: sinktest.Accept(t, serve)}
}

// TestEarlyReply: a server that says why it takes no message before that was sent whole, and ends the connection, is heard.
func TestEarlyReply(t *testing.T) {
	s := speaking(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for _, said := range []string{"220 x", "250-x\r\n250 8BITMIME", "250 ok", "250 ok", "354 go on"} {
			_, _ = fmt.Fprintf(c, "%s\r\n", said)
			_, _ = in.ReadString('\n')
		}
		_, _ = fmt.Fprint(c, "552 5.3.4 too large\r\n")
	})
	k := open(t, s, unencrypted)
	for range 20 {
		if res := k.Deliver(t.Context(), job("ann@example.org", strings.Repeat("0123456789\n", 1<<18)), nil); res.Class != delivery.Permanent || res.Provider == nil {
			t.Errorf("%+v", res)
		}
	}
}

// TestGreetings: what a server says first, or what says it and is none.
func TestGreetings(t *testing.T) {
	t.Parallel()
	for greeting, want := range map[string]delivery.ResultClass{
		"421 4.7.0 too many connections\r\n":    delivery.Throttled,
		"554 5.7.1 your address is blocked\r\n": delivery.Misconfigured,
		"HTTP/1.1 400 Bad Request\r\n\r\n":      delivery.Misconfigured,
		"":                                      delivery.Unreachable,
		"220-" + strings.Repeat(strings.Repeat("x", 1000)+"\r\n220-", 100): delivery.Unreachable,
		"220 " + strings.Repeat("x", 2*maxReply):                           delivery.Unreachable,
	} {
		s := speaking(t, func(c net.Conn) { _, _ = c.Write([]byte(greeting)) })
		res := open(t, s, unencrypted).Deliver(t.Context(), job("ann@example.org", "x"), nil)
		if res.Class != want || res.Detail == "" {
			t.Errorf("%.50q: %+v", greeting, res)
		}
	}
}

func TestClassify(t *testing.T) {
	const wait = 7 * time.Minute
	for _, tt := range []struct {
		at    stage
		said  string
		byJob bool
		want  delivery.ResultClass
		wait  time.Duration
	}{
		{at: ending, said: "250 2.0.0 Ok: queued as 4F7AB12", want: delivery.Delivered},
		{at: ending, said: "251 forwarded", want: delivery.Delivered},
		// Before there is a message.
		{at: connecting, said: "421 4.7.0 too many connections", want: delivery.Throttled, wait: busyWait},
		{at: connecting, said: "450 busy", want: delivery.Throttled, wait: busyWait},
		{at: connecting, said: "554 5.7.1 your address is blocked", want: delivery.Misconfigured},
		{at: connecting, said: "521 no mail here", want: delivery.Misconfigured},
		{at: securing, said: "454 4.7.0 no TLS now", want: delivery.Throttled, wait: busyWait},
		{at: securing, said: "501 no", want: delivery.Misconfigured},
		{at: authenticating, said: "535 5.7.8 wrong password", want: delivery.Misconfigured},
		{at: authenticating, said: "334 what", want: delivery.Misconfigured},
		{at: authenticating, said: "454 4.7.0 not now", want: delivery.Throttled, wait: busyWait},
		// Credentials, at any stage.
		{at: announcing, said: "530 5.7.0 log in", byJob: true, want: delivery.Misconfigured},
		{at: addressing, said: "530 log in", want: delivery.Misconfigured},
		{at: ending, said: "550 5.7.8 no", want: delivery.Misconfigured},
		// The sender.
		{at: announcing, said: "450 4.7.1 too much mail", want: delivery.Throttled, wait: busyWait},
		{at: announcing, said: "450 4.1.8 domain of the sender not found", want: delivery.Temporary, wait: wait},
		{at: announcing, said: "553 5.7.1 not your address", want: delivery.Misconfigured},
		{at: announcing, said: "553 5.7.1 not your address", byJob: true, want: delivery.Permanent},
		{at: announcing, said: "501 5.1.7 bad address", byJob: true, want: delivery.Permanent},
		{at: announcing, said: "552 5.3.4 too large", want: delivery.Permanent},
		{at: announcing, said: "550 5.6.7 needs SMTPUTF8", want: delivery.Permanent},
		{at: announcing, said: "555 unknown parameter", byJob: true, want: delivery.Misconfigured},
		// The recipient.
		{at: addressing, said: "550 5.1.1 no such user", want: delivery.Rejected},
		{at: addressing, said: "550 5.1.10 the domain takes no mail", want: delivery.Rejected},
		{at: addressing, said: "554 5.2.1 disabled", want: delivery.Rejected},
		{at: addressing, said: "550 5.4.1 access denied", want: delivery.Rejected},
		{at: addressing, said: "551 not here", want: delivery.Rejected},
		{at: addressing, said: "556 domain takes no mail", want: delivery.Rejected},
		{at: addressing, said: "550 relay not permitted", want: delivery.Permanent}, // which Exim says so: not the recipient's fault
		{at: addressing, said: "554 5.7.1 relay access denied", want: delivery.Permanent},
		{at: addressing, said: "504 5.5.2 need a full name", want: delivery.Permanent},
		{at: addressing, said: "503 5.5.1 MAIL first", want: delivery.Misconfigured},
		{at: addressing, said: "452 4.2.2 mailbox full", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "450 4.2.0 greylisted", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "451 try later", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "450 4.7.1 greylisted", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "452 4.5.3 too many recipients", want: delivery.Throttled, wait: busyWait},
		{at: addressing, said: "450 4.3.2 overloaded", want: delivery.Throttled, wait: busyWait},
		{at: addressing, said: "421 4.7.0 bye", want: delivery.Throttled, wait: busyWait},
		// The message.
		{at: beginning, said: "503 5.5.1 no recipients", want: delivery.Misconfigured},
		{at: ending, said: "554 5.7.1 spam", want: delivery.Permanent},
		{at: ending, said: "550 5.1.1 no such user", want: delivery.Rejected},
		{at: ending, said: "552 too large", want: delivery.Permanent},
		{at: ending, said: "454 Throttling failure: Maximum sending rate exceeded.", want: delivery.Throttled, wait: busyWait},
		{at: ending, said: "432 4.3.2 concurrent connections exceeded", want: delivery.Throttled, wait: busyWait},
		{at: ending, said: "452 4.3.1 no space", want: delivery.Throttled, wait: busyWait},
		{at: ending, said: "451 4.7.1 try again later", want: delivery.Temporary, wait: wait},
		{at: ending, said: "451 4.4.1 no answer behind", want: delivery.Temporary, wait: wait},
		{at: ending, said: "354 what", want: delivery.Temporary},
	} {
		code, text, _ := strings.Cut(tt.said, " ")
		n, _ := strconv.Atoi(code)
		res := classify(tt.at, parseReply(n, text), tt.byJob, wait)
		if res.Class != tt.want || res.Scope != delivery.ScopeSink || res.RetryAfter != tt.wait {
			t.Errorf("stage %d, %s (%t): %+v", tt.at, tt.said, tt.byJob, res)
		}
	}
}

func TestReplies(t *testing.T) {
	for _, tt := range []struct{ text, enhanced, rest string }{
		{"5.1.1 no such user", "5.1.1", "no such user"},
		{"5.1.1 <a@b>: no\n5.1.1 such user", "5.1.1", "<a@b>: no such user"},
		{"no such user", "", "no such user"},
		{"5.1 x", "", "5.1 x"},
		{"4.7.28", "4.7.28", ""},
		{"12.1.1 x", "", "12.1.1 x"},
	} {
		if r := parseReply(550, tt.text); r.enhanced != tt.enhanced || r.text != tt.rest {
			t.Errorf("%q: %+v", tt.text, r)
		}
	}
	for text, want := range map[string]string{
		"Ok: queued as 4F7AB12": "4F7AB12", "OK id=1sABCd-0001Xy-2Z": "1sABCd-0001Xy-2Z", "Ok 0102018e-5b3a-000000": "0102018e-5b3a-000000",
		"Message accepted": "", "": "", "Ok: queued as <a@b>": "",
	} {
		if got := queueID(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
