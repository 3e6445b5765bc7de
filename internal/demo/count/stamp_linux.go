package count

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stamper reads from a socket together with the kernel's time of arrival; its zero value does not.
type stamper struct{ raw syscall.RawConn }

// timespecSize is the size of a struct timespec on the supported 64-bit systems; others get no stamps.
const timespecSize = 16

func newStampedConn(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || strconv.IntSize != 64 {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	asked := errors.New("not asked")
	err = raw.Control(func(fd uintptr) {
		asked = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || asked != nil {
		return conn // the handler's own clock is used instead
	}
	return &stampedConn{Conn: conn, stamps: stamper{raw}}
}

// Read implements net.Conn. Deadlines and Close work as usual: RawConn waits as Read does.
func (c *stampedConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var n, oobn int
	var failure error
	oob := make([]byte, 128)
	err := c.stamps.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, failure = unix.Recvmsg(int(fd), p, oob, 0)
			if !errors.Is(failure, unix.EINTR) {
				return !errors.Is(failure, unix.EAGAIN)
			}
		}
	})
	switch {
	case err != nil:
		return 0, err // a net.Conn's errors must stay unwrapped
	case failure != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.RemoteAddr(), Err: failure}
	case n == 0:
		return 0, io.EOF
	}
	if arrived, ok := stampOf(oob[:oobn]); ok {
		c.note(arrived, time.Now())
	}
	return n, nil
}

// stampOf returns the time of arrival from the control messages.
func stampOf(oob []byte) (time.Time, bool) {
	for len(oob) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return time.Time{}, false
		}
		if header.Level == unix.SOL_SOCKET && header.Type == unix.SCM_TIMESTAMPNS && len(data) >= timespecSize {
			seconds := binary.NativeEndian.Uint64(data)
			nanoseconds := binary.NativeEndian.Uint64(data[8:])
			return time.Unix(int64(seconds), int64(nanoseconds)), true
		}
		oob = rest
	}
	return time.Time{}, false
}
