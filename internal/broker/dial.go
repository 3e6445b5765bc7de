package broker

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFirstReply bounds the first answer on a connection to a broker: the API versions or the SASL mechanisms that it
// supports, a few hundred bytes.
const maxFirstReply = 1 << 20

// dialer connects to brokers. The client library trusts any length and count in an answer, so a server of another kind,
// such as an HTTP port, would cost half a gigabyte and all of a core.
type dialer struct {
	security  func() Security
	cluster   func() string // see Options.Cluster
	log       *slog.Logger
	strangers sync.Map // address -> stranger
	silent    sync.Map // address of a broker -> when a request was sent to it that got no answer in time, time.Time
}

// stranger is a broker of another cluster. It is not dialled for a while, so that the next seed is.
type stranger struct {
	error
	until time.Time
}

const passOver = 5 * time.Second

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c := &brokerConn{network: network, address: address, dialer: d}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// ErrOtherCluster means that a broker is of another cluster than the one that alone is used.
var ErrOtherCluster = errors.New("another Kafka cluster answers")

// Strangers asks each of the client's seeds alone, and returns the errors of those that are of another cluster.
func (c *Client) Strangers(ctx context.Context) (errs []error) {
	for seed := range strings.SplitSeq(c.kafka.Addr.String(), ",") {
		_, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Addr: kafka.TCP(seed), Topics: []string{}})
		if errors.Is(err, ErrOtherCluster) {
			errs = append(errs, unnamed(err))
		}
	}
	return errs
}

// encrypt closes the connection if the handshake fails.
func encrypt(ctx context.Context, conn net.Conn, encryption *tls.Config, address string) (net.Conn, error) {
	if encryption.ServerName == "" {
		encryption = encryption.Clone()
		encryption.ServerName, _, _ = net.SplitHostPort(address) // otherwise it could not be dialled
	}
	encrypted := tls.Client(conn, encryption)
	err := encrypted.HandshakeContext(ctx)
	if err == nil {
		return encrypted, nil
	}
	_ = conn.Close()
	var header tls.RecordHeaderError
	if errors.As(err, &header) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return nil, fmt.Errorf("%s does not answer in TLS: %w; is kafka.tls right, and the port?", address, err)
	}
	return nil, fmt.Errorf("TLS to %s: %w; look at kafka.tls", address, err)
}

// brokerConn is a connection to a broker, logged in as pacer's user. It rejects a first answer that no broker gives, and requests to
// brokers of another cluster.
type brokerConn struct {
	net.Conn
	network, address string
	dialer           *dialer
	deadline         time.Time
	head             []byte    // of the first answer, up to the four bytes of its length
	cluster          string    // that the broker was found to be of
	renew            time.Time // when to log in again; zero: never
	answered         time.Time // when the broker last did
	asked            time.Time // when the request that is under way was sent; zero: none is
}

// open connects and logs in.
func (c *brokerConn) open(ctx context.Context) error {
	d := c.dialer
	if s, ok := d.strangers.Load(c.address); ok && time.Now().Before(s.(stranger).until) {
		return s.(stranger).error
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, c.network, c.address)
	if err != nil {
		return err
	}
	if encryption := d.security().TLS; encryption != nil {
		if conn, err = encrypt(ctx, conn, encryption, c.address); err != nil {
			return &unsent{err}
		}
	}
	c.Conn, c.cluster, c.answered = conn, "", time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
		defer func() { _ = conn.SetDeadline(c.deadline) }()
	}
	if err = c.login(ctx); err == nil {
		err = c.prepare(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return &unsent{err}
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *brokerConn) SetDeadline(at time.Time) error {
	c.deadline = at
	return c.Conn.SetDeadline(at)
}

// Write prepares the connection for a request; p is its beginning or a later part.
func (c *brokerConn) Write(p []byte) (int, error) {
	if c.asked.IsZero() {
		until := time.Now().Add(dialTimeout)
		if !c.deadline.IsZero() {
			until = c.deadline
		}
		ctx, cancel := context.WithDeadline(context.Background(), until)
		defer cancel()
		if err := c.prepare(ctx); err != nil {
			return 0, &unsent{err}
		}
		c.asked = time.Now()
	}
	return c.Conn.Write(p)
}

// prepare logs in again before the session of the last login ends, and asks for the cluster unless it is known to be the one to use. If the
// broker left a request on another connection without an answer, this one may be dead as well, and is made anew. Nothing is under way on it.
func (c *brokerConn) prepare(ctx context.Context) error {
	if silent, ok := c.dialer.silent.Load(c.address); ok && c.answered.Before(silent.(time.Time)) {
		_ = c.Conn.Close()
		return c.open(ctx)
	}
	if !c.renew.IsZero() && time.Now().After(c.renew) {
		if err := c.login(ctx); err != nil {
			return err
		}
	}
	if want := c.dialer.cluster(); c.cluster != want {
		return c.verify(want)
	}
	return nil
}

// exchange sends a request of the connection's own, and reads the answer.
func (c *brokerConn) exchange(request kmsg.Request, answer kmsg.Response) error {
	_, err := exchange(struct {
		io.Reader
		io.Writer
	}{c, c.Conn}, request, answer, withoutRecords)
	return err
}

// verify returns an error if the broker reports another cluster.
func (c *brokerConn) verify(cluster string) error {
	request, answer := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
	request.Version = 7                            // without tagged fields
	request.Topics = []kmsg.MetadataRequestTopic{} // none; nil is all
	if err := c.exchange(request, answer); err != nil {
		return err
	}
	id := answer.ClusterID
	if id == nil || *id == cluster || cluster == "" {
		c.cluster = cluster
		c.dialer.strangers.Delete(c.address)
		return nil
	}
	err := fmt.Errorf("%w at %s: its id is %s, and pacer is set up for %s; correct kafka.brokers. To use that cluster from now on, stop all "+
		"daemons and run pacer migrate up --cluster %s", ErrOtherCluster, c.address, *id, cluster, *id)
	before, known := c.dialer.strangers.Swap(c.address, stranger{&unsent{err}, time.Now().Add(passOver)})
	if !known || before.(stranger).Error() != err.Error() {
		c.dialer.log.Error("a broker of another Kafka cluster is passed over; nothing is read from it or written to it", "error", err)
	}
	return err
}

func (c *brokerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case n > 0:
		c.asked, c.answered = time.Time{}, time.Now()
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.dialer.silent.Store(c.address, c.asked)
	}
	if missing := 4 - len(c.head); missing > 0 && n > 0 {
		c.head = append(c.head, p[:min(n, missing)]...)
		if fault := c.judge(); fault != nil {
			return 0, fault
		}
	}
	return n, err
}

// judge checks the length of the first answer once its bytes have arrived.
func (c *brokerConn) judge() error {
	if len(c.head) < 4 || binary.BigEndian.Uint32(c.head) <= maxFirstReply {
		return nil
	}
	if c.head[0] == 0x15 && c.head[1] == 0x03 { // a TLS alert: the server expects TLS
		return fmt.Errorf("%s expects TLS; set kafka.tls", c.address)
	}
	return fmt.Errorf("%s is no Kafka broker, its answer begins with %q; correct kafka.brokers", c.address, c.head)
}
