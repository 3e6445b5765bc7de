package broker

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// serving is an address where each connection is served and closed.
func serving(t *testing.T, secure *tls.Config, serve func(net.Conn)) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// TestAServerThatIsNoBrokerIsTold: also one without TLS that closes the connection, or answers something else, where TLS is set.
func TestAServerThatIsNoBrokerIsTold(t *testing.T) {
	const http = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
	trusted, _ := issued(t)
	for _, c := range []struct {
		answer string
		secure *tls.Config
		says   string
	}{
		{http, nil, `begins with "HTTP"; correct kafka.brokers`},
		{"\x15\x03\x03\x00\x02\x02\x46", nil, "expects TLS; set kafka.tls"},
		{http, trusted, "does not answer in TLS"},
		{"", trusted, "does not answer in TLS"},
	} {
		address := serving(t, nil, func(conn net.Conn) {
			_, _ = io.CopyN(io.Discard, conn, 4) // the question has begun
			_, _ = io.WriteString(conn, c.answer)
		})
		client := dial(t, Options{Brokers: []string{address}, Security: func() Security { return Security{TLS: c.secure} }})
		_, err := client.Partitions(t.Context(), "pacer.jobs")
		if err == nil || !strings.Contains(err.Error(), address+" ") || !strings.Contains(err.Error(), c.says) ||
			c.secure != nil && !strings.Contains(err.Error(), "kafka.tls") {
			t.Errorf("%q, TLS %t: error %v, want %q", c.answer, c.secure != nil, err, c.says)
		}
	}
}

type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func TestABrokersAnswersPassUnchanged(t *testing.T) {
	// Its second answer may be longer than the first may.
	said := "\x00\x10\x00\x00" + strings.Repeat("a", maxFirstReply) + "\x7f\xff\xff\xff" + "b"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(said), "byte by byte": iotest.OneByteReader(strings.NewReader(said)),
	} {
		got, err := io.ReadAll(&brokerConn{Conn: readConn{r: r}})
		if err != nil || string(got) != said {
			t.Errorf("%s: %d bytes of %d, error %v", name, len(got), len(said), err)
		}
	}
}

// TestErrorsNameNoMethods: an error of a broker that cannot be reached says what was asked for, and why it failed.
func TestErrorsNameNoMethods(t *testing.T) {
	client := dial(t, Options{Brokers: []string{"127.0.0.1:1"}})
	at, topics := Partition{Topic: "pacer.jobs"}, []Topic{{Name: "pacer.jobs", Partitions: 1, Replicas: 1}}
	for what, ask := range map[string]func(context.Context) error{
		"ids":        func(ctx context.Context) error { _, _, err := client.Identify(ctx, "pacer.jobs"); return err },
		"partitions": func(ctx context.Context) error { _, err := client.Partitions(ctx, "pacer.jobs"); return err },
		"offsets":    func(ctx context.Context) error { _, err := client.Offsets(ctx, Latest, at); return err },
		"create":     func(ctx context.Context) error { _, err := client.CreateTopics(ctx, topics, nil); return err },
		"topics": func(ctx context.Context) error {
			_, _, err := client.Topics(ctx, []string{"pacer.jobs"}, []string{"retention.ms"})
			return err
		},
		"publish": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := NewProducer(ProducerOptions{Client: client}).Publish(ctx, "pacer.jobs", All([]delivery.Record{{}}), nil)
			return err
		},
	} {
		if err := ask(t.Context()); err == nil || strings.Contains(err.Error(), "(*") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
