package sinktest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Accept has serve speak with each connection to an address, and closes it then.
func Accept(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

// Watch returns a dialer whose connections call closed once they are closed.
func Watch(dial Dial, closed func()) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &watched{Conn: c, closed: closed}, err
	}
}

// Dial opens a connection.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

type watched struct {
	net.Conn
	closed func()
}

func (c *watched) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}
