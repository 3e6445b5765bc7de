package harness

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// echo answers every line with itself and returns its address.
func echo(t *testing.T) string {
	t.Helper()
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
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// ask sends a line over conn and returns how long the answer took.
func ask(conn net.Conn, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	_ = conn.SetDeadline(began.Add(patience))
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return 0, err
	}
	_, err := bufio.NewReader(conn).ReadString('\n')
	return time.Since(began), err
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestProxyDisturbsAndHeals(t *testing.T) {
	p := NewProxy(t, echo(t))
	conn := dial(t, p.Addr)
	if _, err := ask(conn, 5*time.Second); err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	p.Delay(200*time.Millisecond, 0)
	if took, err := ask(conn, 5*time.Second); err != nil || took < 200*time.Millisecond {
		t.Errorf("delayed by 200 ms: %s, %v", took, err)
	}
	p.Heal()
	p.Narrow(1)
	if _, err := ask(conn, 5*time.Second); err != nil {
		t.Errorf("narrow: %v", err)
	}
	p.Heal()
	p.Silence()
	if _, err := ask(conn, 200*time.Millisecond); err == nil {
		t.Error("an answer came through a silent proxy")
	}
	p.Heal()
	p.Cut()
	if _, err := ask(dial(t, p.Addr), 5*time.Second); err == nil {
		t.Error("an answer came over a connection that was cut")
	}
	p.Heal()
	p.Down()
	if _, err := net.Dial("tcp", p.Addr); err == nil {
		t.Error("a connection was accepted while the service was down")
	}
	p.Heal()
	if _, err := ask(dial(t, p.Addr), 5*time.Second); err != nil {
		t.Errorf("healed: %v", err)
	}
}
