package app

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

// maxFirstReply bounds the first answer on a connection to a broker: the API versions or the SASL mechanisms it knows,
// a few hundred bytes.
const maxFirstReply = 1 << 20

// dialBroker connects to a broker. The client library believes whatever length and counts it is told, so a server of
// another kind, an HTTP port for example, would cost it half a gigabyte and all of a core.
func dialBroker(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &brokerConn{Conn: conn, address: address}, nil
}

// brokerConn refuses a first answer that no broker gives.
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

// judge looks at the length of the first answer once all of it is there.
func (c *brokerConn) judge() error {
	if len(c.head) < 4 || binary.BigEndian.Uint32(c.head) <= maxFirstReply {
		return nil
	}
	if c.head[0] == 0x15 && c.head[1] == 0x03 { // a TLS alert: what a server says that was not spoken to in TLS
		return fmt.Errorf("%s expects TLS; set kafka.tls", c.address)
	}
	return fmt.Errorf("%s is no Kafka broker, its answer begins with %q; correct kafka.brokers", c.address, c.head)
}

// brokersFault names the setting where a command could not reach the brokers; other errors stay as they are.
func brokersFault(err error) error {
	var network *net.OpError
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	return err
}
