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
	"slices"
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

// stranger is a broker of another cluster. It is not dialled for a while, so that the next seed is.
type stranger struct {
	error
	until time.Time
}

const passOver = 5 * time.Second

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s, ok := d.strangers.Load(address); ok && time.Now().Before(s.(stranger).until) {
		return nil, s.(stranger).error
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
	return &brokerConn{Conn: conn, address: address, dialer: d}, nil
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

// brokerConn rejects a first answer that no broker gives, and requests to brokers of another cluster.
type brokerConn struct {
	net.Conn
	address string
	head    []byte // of the first answer, up to the four bytes of its length
	dialer  *dialer
	cluster string // that the broker was found to be of
	asked   bool   // a request is under way
}

// loginKeys are of the requests that a broker answers before the login.
var loginKeys = []protocol.ApiKey{protocol.ApiVersions, protocol.SaslHandshake, protocol.SaslAuthenticate}

// ofLogin reports whether bytes begin a request of the login, or are no request.
func ofLogin(p []byte) bool {
	return len(p) < 6 || slices.Contains(loginKeys, protocol.ApiKey(binary.BigEndian.Uint16(p[4:])))
}

// Write asks for the cluster before the first request after the login, and before the next one when another cluster is used from now on.
func (c *brokerConn) Write(p []byte) (int, error) {
	if want := c.dialer.cluster(); c.cluster != want && !c.asked && !ofLogin(p) {
		if err := c.verify(want); err != nil {
			return 0, &unsent{err}
		}
	}
	c.asked = true
	return c.Conn.Write(p)
}

// verify returns an error unless the broker is of a cluster, as far as it knows of which.
func (c *brokerConn) verify(cluster string) error {
	request, answer := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
	request.Version, answer.Version = 7, 7         // without tagged fields
	request.Topics = []kmsg.MetadataRequestTopic{} // none; nil is all
	if _, err := exchange(c.Conn, request, answer); err != nil {
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
	c.asked = false
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
