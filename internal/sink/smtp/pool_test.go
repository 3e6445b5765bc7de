package smtp

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
)

// piped is a server without a network, so that time can be anything.
type piped struct {
	mu       sync.Mutex
	commands []string // of all connections, in order
	deaf     bool     // says nothing any more
	last     string   // the command that gets no answer; "." for the message
	ends     bool     // and ends the connection
	conns    int
	open     int
}

func (s *piped) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.mu.Lock()
	s.conns++
	s.open++
	s.mu.Unlock()
	go func() {
		defer server.Close()
		s.serve(server)
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	return client, nil
}

func (s *piped) serve(c net.Conn) {
	say := func(text string) { _, _ = c.Write([]byte(text + "\r\n")) }
	say("220 hello")
	message := false
	for in := bufio.NewScanner(c); in.Scan(); {
		if message {
			if message = in.Text() != "."; !message && s.last != "." {
				say("250 2.0.0 taken")
			}
			if !message && s.last == "." && s.ends {
				return
			}
			continue
		}
		command, _, _ := strings.Cut(in.Text(), " ")
		s.mu.Lock()
		s.commands = append(s.commands, command)
		deaf := s.deaf
		s.mu.Unlock()
		switch {
		case command == "QUIT":
			return
		case command == s.last && s.ends:
			return
		case deaf || command == s.last:
		case command == "DATA":
			message = true
			say("354 go on")
		case command == "RCPT" && strings.Contains(in.Text(), "gone"):
			say("550 5.1.1 no such user")
		default:
			say("250 2.0.0 ok")
		}
	}
}

// told returns the commands so far, and forgets them.
func (s *piped) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.commands, " ")
	s.commands = nil
	return text
}

// inTime runs a test with a sink of that server, whose Run runs.
func inTime(t *testing.T, test func(t *testing.T, s *piped, deliver func(to string) delivery.Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := Default()
		unencrypted(c)
		c.Addr, c.From, c.Subject, c.Text, c.Hello = "mail:25", "news@example.com", "x", "y", "me"
		k, err := New(c, base.Host{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		s := &piped{}
		k.dial = s.dial
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		test(t, s, func(to string) delivery.Result { return k.Deliver(t.Context(), job(to, ""), nil) })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = k.Close()
		synctest.Wait()
		if s.mu.Lock(); s.open != 0 {
			t.Errorf("%d connections are still open", s.open)
		}
		s.mu.Unlock()
	})
}

// TestIdle: a connection is used again within half a minute, and replaced after that.
func TestIdle(t *testing.T) {
	inTime(t, func(t *testing.T, s *piped, deliver func(string) delivery.Result) {
		for i, to := range []string{"ann@example.org", "gone@example.org", "ann@example.org"} {
			time.Sleep(29 * time.Second)
			if res := deliver(to); res.Class != []delivery.ResultClass{delivery.Delivered, delivery.Rejected, delivery.Delivered}[i] {
				t.Fatalf("%+v", res)
			}
		}
		if got := s.told(); got != "EHLO MAIL RCPT DATA MAIL RCPT RSET MAIL RCPT DATA" || s.conns != 1 {
			t.Errorf("%s over %d connections", got, s.conns)
		}
		time.Sleep(maxIdle)
		if res := deliver("ann@example.org"); res.Class != delivery.Delivered || s.conns != 2 {
			t.Errorf("%+v over %d connections", res, s.conns)
		}
		synctest.Wait()
		if s.mu.Lock(); s.open != 1 {
			t.Errorf("%d connections are open", s.open)
		}
		s.mu.Unlock()
	})
}

// TestAge: a connection that is old is replaced, however often it is used.
func TestAge(t *testing.T) {
	inTime(t, func(t *testing.T, s *piped, deliver func(string) delivery.Result) {
		for used := time.Duration(0); used <= maxAge; used += 20 * time.Second {
			if res := deliver("ann@example.org"); res.Class != delivery.Delivered || s.conns != 1+int(used/maxAge) {
				t.Fatalf("after %s: %+v over %d connections", used, res, s.conns)
			}
			time.Sleep(20 * time.Second)
		}
	})
}

// TestNoAnswer: what gets no answer, in time or at all, may have been taken once its end was sent, and was not taken before.
func TestNoAnswer(t *testing.T) {
	for _, tt := range []struct {
		command, at string
		want        delivery.ResultClass
	}{
		{"EHLO", "", delivery.Unreachable}, {"MAIL", ", after MAIL", delivery.Unreachable}, {"RCPT", ", after RCPT", delivery.Unreachable},
		{"DATA", ", before the end of the message", delivery.Unreachable}, {".", "; it may have taken the message", delivery.Temporary},
	} {
		for said, limit := range map[string]time.Duration{"no answer from mail:25 within 30s": 30 * time.Second, "mail:25 closed the connection": 0} {
			inTime(t, func(t *testing.T, s *piped, deliver func(to string) delivery.Result) {
				s.last, s.ends = tt.command, limit == 0
				begun := time.Now()
				res := deliver("ann@example.org")
				if took := time.Since(begun); res.Class != tt.want || took != limit || !strings.HasPrefix(res.Detail, said) || !strings.HasSuffix(res.Detail, tt.at) ||
					(res.By == delivery.ByNobody) != (tt.want == delivery.Temporary) || s.conns != 1 {
					t.Errorf("%s: %+v after %s, %d connections", tt.command, res, took, s.conns)
				}
			})
		}
	}
}
