package catalog

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// lines is a log whose lines can be awaited.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestASilentDatabaseIsReported as soon as a load has failed: the first one does not wait until the listener has given up, which takes as
// long again.
func TestASilentDatabaseIsReported(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }() // all of it has been accepted
	said := make(lines, 10)
	p, err := NewPostgres(Options{
		DSN: "postgres://pacer@" + server.Addr().String() + "/pacer?sslmode=disable", Logger: slog.New(slog.NewTextHandler(said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	accept := func() net.Conn {
		c, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	listener, gaveUp := accept(), make(chan struct{})
	go func() {
		defer close(gaveUp)
		_, _ = io.Copy(io.Discard, listener) // until the client has had enough of getting no answer
	}()
	_ = accept().Close() // that of the load
	if line := <-said; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "catalog cannot be read") {
		t.Errorf("said %s", line)
	}
	select {
	case <-gaveUp:
		t.Error("the listener had to give up first")
	default:
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-gaveUp
	_ = listener.Close()
}
