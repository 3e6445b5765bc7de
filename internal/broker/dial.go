package broker

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// maxFirstReply bounds the first answer on a connection to a broker: the API versions or the SASL mechanisms that it
// supports, a few hundred bytes.
const maxFirstReply = 1 << 20

// dialer connects to brokers. The client library trusts any length and count in an answer, so a server of another kind,
// such as an HTTP port, would cost half a gigabyte and all of a core.
type dialer func() Security

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if encryption := d().TLS; encryption != nil {
		if conn, err = encrypt(ctx, conn, encryption, address); err != nil {
			return nil, &unsent{err}
		}
	}
	return &brokerConn{Conn: conn, address: address}, nil
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

// brokerConn rejects a first answer that no broker gives.
type brokerConn struct {
	net.Conn
	address string
	head    []byte // of the first answer, up to the four bytes of its length
}

func (c *brokerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
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
