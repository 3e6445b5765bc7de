package app

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/segmentio/kafka-go"
)

// answering is an address where every connection gets the answer and is closed.
func answering(t *testing.T, answer string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, conn, 4) // the question has begun
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

func TestAServerThatIsNoBrokerIsToldFromOne(t *testing.T) {
	for _, c := range []struct{ answer, says string }{
		{
			"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
			`begins with "HTTP"; correct kafka.brokers`,
		},
		{"\x15\x03\x03\x00\x02\x02\x46", "expects TLS; set kafka.tls"},
	} {
		t.Chdir(t.TempDir())
		address := answering(t, c.answer)
		s, err := Invocation{Environ: []string{"PACER_KAFKA_BROKERS=" + address}, Stderr: io.Discard}.services(NeedKafka)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.kafka.Metadata(t.Context(), &kafka.MetadataRequest{})
		if err == nil || !strings.Contains(err.Error(), address+" ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want %q", c.answer, err, c.says)
		}
		_, err = s.dialer.LookupPartitions(t.Context(), "tcp", address, "pacer.jobs")
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: the dialer's error %v, want %q", c.answer, err, c.says)
		}
		s.close()
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

func TestBrokersThatCannotBeReachedAreNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	in := Invocation{Environ: []string{
		"PACER_KAFKA_BROKERS=127.0.0.1:1", "PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer",
	}, Stdout: io.Discard, Stderr: io.Discard}
	for name, err := range map[string]error{
		"dead list":        DeadList(t.Context(), in, &DeadListFlags{}),
		"dead show":        DeadShow(t.Context(), in, "u-42", false),
		"dead replay":      DeadReplay(t.Context(), in, &DeadReplayFlags{}),
		"publish":          Publish(t.Context(), in, &PublishFlags{Campaign: "spring", Count: 1, CountSet: true}),
		"publish --direct": Publish(t.Context(), in, &PublishFlags{Campaign: "spring", Count: 1, CountSet: true, Direct: true}),
	} {
		if err == nil || !strings.Contains(err.Error(), "kafka.brokers: ") || strings.Contains(err.Error(), "migrate up") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
