package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
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
}

// stranger is an address at which another cluster has answered. It is not dialled for a while, so that the next seed is.
type stranger struct {
	err   error
	until time.Time
}

const passOver = 5 * time.Second

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s, ok := d.strangers.Load(address); ok && time.Now().Before(s.(stranger).until) {
		return nil, s.(stranger).err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if encryption := d.security().TLS; encryption != nil {
		if conn, err = encrypt(ctx, conn, encryption, address); err != nil {
			return nil, &unsent{err}
		}
	}
	c := &brokerConn{Conn: conn, address: address, dialer: d}
	if d.security().SASL.Mechanism == "" { // otherwise nothing is answered before the login
		deadline, _ := ctx.Deadline() // kafka-go sets the next one
		if err = cmp.Or(conn.SetDeadline(deadline), c.follow()); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return c, nil
}

// ErrOtherCluster means that a broker belongs to another cluster than the one that alone is to be used.
var ErrOtherCluster = errors.New("another Kafka cluster answers")

// follow has the connection be one to the cluster that is used now, or returns an error: then it is none.
func (c *brokerConn) follow() error {
	d, want := c.dialer, c.dialer.cluster()
	if c.cluster == want {
		return nil
	}
	request, answer := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
	request.Version, answer.Version = clusterVersion, clusterVersion
	request.Topics = []kmsg.MetadataRequestTopic{} // none; nil is all
	c.busy = true
	if err := exchange(c, request, answer); err != nil {
		return &unsent{err}
	}
	if err := other(c.address, answer.ClusterID, want); err != nil {
		before, known := d.strangers.Swap(c.address, stranger{err, time.Now().Add(passOver)})
		if !known || before.(stranger).err.Error() != err.Error() {
			d.log.Error("another Kafka cluster answers; nothing is read from it or written to it", "error", err)
		}
		return err
	}
	d.strangers.Delete(c.address)
	c.cluster = want
	return nil
}

// clusterVersion of a request for metadata has the id of the cluster in its answer, and no tagged fields.
const clusterVersion = 7

// other returns the error of an answer from another cluster than the one wanted; nil if that does not matter or is not known.
func other(address string, id *string, want string) error {
	if id == nil || *id == "" || *id == want || want == "" {
		return nil
	}
	return &unsent{fmt.Errorf("%w at %s: its id is %s, and pacer is set up with %s; correct kafka.brokers. To use that cluster from now on, stop all "+
		"daemons and run pacer migrate up --cluster %s", ErrOtherCluster, address, *id, want, *id)}
}

// Strangers asks each of the brokers that the client was given alone, and returns an error for each that is of another cluster.
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

// brokerConn rejects a first answer that no broker gives, and asks for the cluster before the first request that is not part of the login.
type brokerConn struct {
	net.Conn
	address string
	head    []byte // of the first answer, up to the four bytes of its length

	dialer  *dialer
	cluster string // the broker's, as far as it matters
	busy    bool   // a request is under way
}

func (c *brokerConn) Write(p []byte) (int, error) {
	if !c.busy && !logsIn(p) {
		if err := c.follow(); err != nil {
			return 0, err
		}
	}
	c.busy = true
	return c.Conn.Write(p)
}

// logsIn reports whether a request is one of those that begin a connection.
func logsIn(request []byte) bool {
	if len(request) < 6 {
		return false
	}
	switch protocol.ApiKey(binary.BigEndian.Uint16(request[4:])) {
	case protocol.ApiVersions, protocol.SaslHandshake, protocol.SaslAuthenticate:
		return true
	}
	return false
}

func (c *brokerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.busy = false
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
