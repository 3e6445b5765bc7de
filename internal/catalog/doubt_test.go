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

	"github.com/pacer/pacer/internal/delivery"
)

// What a severed connection does when a transaction is committed over it.
const (
	passes     = iota
	losesAsk   // the commit does not reach the server
	losesReply // it does, and its answer does not come back
	losesAll   // likewise, and then the server cannot be reached until further notice
)

// severed is a proxy before a database that ends connections in the middle of a commit.
type severed struct {
	mode atomic.Int32
	away atomic.Bool
}

// before starts a proxy before the database, and returns the DSN that leads through it.
func (s *severed) before(t *testing.T, dsn string) string {
	t.Helper()
	to, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	server := to.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if s.away.Load() {
				_ = conn.Close()
				continue
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
			s.away.Store(mode == losesAll)
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

// TestACommitThatIsCut: what became of a change is found out, and where it cannot be, that is said; none is made twice or forgotten.
func TestACommitThatIsCut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode int32
		made bool
		err  error
	}{
		"before it arrives": {losesAsk, false, nil}, "after it was done": {losesReply, true, nil}, "and the server is gone": {losesAll, true, ErrInDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var link severed
			dsn, ctx := migrated(t), t.Context()
			a, direct := adminOf(t, link.before(t, dsn)), adminOf(t, dsn)
			request := KeyedRequest{Actor: "alice", Key: "k", Fingerprint: make([]byte, 32)}
			claim, before, err := a.ClaimKey(ctx, request)
			if err != nil || before != nil {
				t.Fatalf("%+v, %v", before, err)
			}
			rate := "100"
			link.mode.Store(tt.mode)
			row, err := a.CreateCampaign(ctx, "spring", CampaignChange{Rate: &rate})
			if link.mode.Load() != passes {
				t.Fatal("nothing was committed")
			}
			if (err == nil) != (tt.made && tt.err == nil) || tt.err != nil && !errors.Is(err, tt.err) || err != nil && strings.Contains(err.Error(), "\n") || err == nil && row.ID != "spring" {
				t.Errorf("%+v, %v", row, err)
			}
			if tt.err == nil && errors.Is(err, ErrInDoubt) {
				t.Errorf("in doubt, though the server can be asked: %v", err)
			}
			if _, err := direct.GetCampaign(ctx, "spring"); (err == nil) != tt.made {
				t.Errorf("then there is: %v", err)
			}
			link.away.Store(false)
			if tt.err == nil {
				return
			}
			if err := a.LeaveKey(ctx, request, claim); err != nil {
				t.Fatal(err)
			}
			if _, _, err := direct.ClaimKey(ctx, request); !errors.Is(err, ErrKeyUnfinished) {
				t.Errorf("sent again: %v", err)
			}
		})
	}
}

// TestAPartOfManyIsCut: campaigns of a part whose commit was cut are counted as changed if they were, and only then.
func TestAPartOfManyIsCut(t *testing.T) {
	t.Parallel()
	var link severed
	dsn, ctx := migrated(t), t.Context()
	a, rate := adminOf(t, link.before(t, dsn)), "100"
	if _, err := a.CreateCampaign(ctx, "spring", CampaignChange{Rate: &rate}); err != nil {
		t.Fatal(err)
	}
	half := BulkChange{Percent: 50}
	for _, tt := range []struct {
		mode int32
		n    int
		rate delivery.Rate
	}{{losesAsk, 0, delivery.PerSecond(100)}, {losesReply, 1, delivery.PerSecond(50)}} {
		link.mode.Store(tt.mode)
		n, err := a.ChangeCampaigns(ctx, []string{"spring"}, half)
		if n != tt.n || (err == nil) != (n == 1) || errors.Is(err, ErrInDoubt) {
			t.Errorf("%d changed, %v", n, err)
		}
		snapshot, err := a.Snapshot(ctx)
		if err != nil || snapshot.Campaign("spring").Rate != tt.rate {
			t.Errorf("then %+v, %v", snapshot.Campaign("spring"), err)
		}
	}
}
