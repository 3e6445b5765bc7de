package catalog

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// How a severed connection treats a commit.
const (
	passes     = iota
	losesAsk   // the commit does not reach the server
	losesReply // it does, and its answer does not come back
)

// severed is a proxy before a database that ends connections in the middle of a commit.
type severed struct {
	mode atomic.Int32
}

// before starts a proxy before the database, and returns the DSN that leads through it.
func (s *severed) before(t *testing.T, dsn string) string {
	t.Helper()
	to := try(url.Parse(dsn))(t)
	server := to.Host
	l := try(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.pass(conn, server)
		}
	}()
	to.Host = l.Addr().String()
	return to.String()
}

func (s *severed) pass(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	var lost atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil || lost.Load() {
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			break
		}
		if mode := s.mode.Load(); mode != passes && bytes.HasPrefix(b[:n], []byte("Q")) && bytes.Contains(b[:n], []byte("commit")) {
			s.mode.Store(passes)
			if mode == losesAsk {
				return
			}
			lost.Store(true)
			_, _ = server.Write(b[:n])
			<-done // until the server has answered
			return
		}
		if _, err := server.Write(b[:n]); err != nil {
			break
		}
	}
	_, _ = io.Copy(io.Discard, client)
}

// TestACommitThatIsCut: after a commit without an answer the error says that the change may have been made.
func TestACommitThatIsCut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode int32
		made bool
	}{
		"before it arrives": {losesAsk, false}, "after it was done": {losesReply, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var link severed
			dsn, ctx := migrated(t), t.Context()
			a, direct := adminOf(t, link.before(t, dsn)), adminOf(t, dsn)
			rate := "100"
			link.mode.Store(tt.mode)
			_, err := a.CreateCampaign(ctx, "spring", CampaignChange{Rate: &rate})
			if link.mode.Load() != passes {
				t.Fatal("nothing was committed")
			}
			if !errors.Is(err, ErrInDoubt) || !strings.Contains(err.Error(), "may have been made") || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %v", err)
			}
			if _, err := direct.GetCampaign(ctx, "spring"); (err == nil) != tt.made {
				t.Errorf("then there is: %v", err)
			}
			if _, err := a.SetCampaign(ctx, "spring", CampaignChange{}); errors.Is(err, ErrInDoubt) {
				t.Errorf("of the next change: %v", err)
			}
		})
	}
}
