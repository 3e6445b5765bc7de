package catalog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// How a severed connection treats a commit.
const (
	passes     = iota
	losesAsk   // the commit does not reach the server
	losesReply // it does, and its answer does not come back
)

// severed is a connection to a database that ends in the middle of a commit.
type severed struct {
	net.Conn
	mode *atomic.Int32 // of the next commit
	lost atomic.Int32
}

func (c *severed) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("Q")) && bytes.Contains(b, []byte("commit")) {
		c.lost.Store(c.mode.Swap(passes))
	}
	if c.lost.Load() == losesAsk {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *severed) Read(b []byte) (n int, err error) {
	if c.lost.Load() != losesAsk {
		n, err = c.Conn.Read(b) // also until the server has answered what is lost
	}
	if c.lost.Load() != passes {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
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
			dsn, ctx := migrated(t), t.Context()
			a, direct := adminOf(t, dsn), adminOf(t, dsn)
			var mode atomic.Int32
			dial := a.database.config.ConnConfig.DialFunc
			a.database.config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &severed{Conn: conn, mode: &mode}, err
			}
			mode.Store(tt.mode)
			refused(t, ErrInDoubt, "may have been made")(a.created(ctx, "spring", CampaignChange{Rate: new("100")}))
			if mode.Load() != passes {
				t.Fatal("nothing was committed")
			}
			if _, err := direct.GetCampaign(ctx, "spring"); (err == nil) != tt.made {
				t.Errorf("then there is: %v", err)
			}
			if _, err := a.edited(ctx, "spring", CampaignChange{}); errors.Is(err, ErrInDoubt) {
				t.Errorf("of the next change: %v", err)
			}
		})
	}
}
