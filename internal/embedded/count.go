package embedded

import (
	"net"
	"sync/atomic"
)

// countedConn is one client's connection to the Redis. A round trip begins with the first bytes that arrive after an
// answer was written (or after the connection was made); what a pipeline sends before its first answer is the same one.
type countedConn struct {
	net.Conn
	trips, commands *atomic.Int64
	asked           atomic.Bool    // bytes have arrived since the last answer; read and written by the server's two goroutines
	request         requestCounter // of the reading goroutine alone
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if !c.asked.Swap(true) {
			c.trips.Add(1)
		}
		c.commands.Add(c.request.count(p[:n]))
	}
	return n, err // a net.Conn hands on the errors of the one it wraps: io.EOF must stay itself
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.asked.Store(false)
	return c.Conn.Write(p)
}

// requestCounter counts the commands in what a client sends, however it is cut into reads. A command is an array of
// strings: "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n". Strings are passed over by their lengths, since they may hold anything.
type requestCounter struct {
	skip   int64 // bytes of a string, with its line end, still to come
	line   byte  // the first byte of the line that has begun; 0 at the start of one
	number int64 // in it
}

// count is how many commands begin in b.
func (r *requestCounter) count(b []byte) (commands int64) {
	for len(b) > 0 {
		if r.skip > 0 {
			passed := min(r.skip, int64(len(b)))
			r.skip -= passed
			b = b[passed:]
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case r.line == 0:
			r.line, r.number = c, 0
		case c >= '0' && c <= '9':
			r.number = r.number*10 + int64(c-'0')
		case c == '\n':
			switch r.line {
			case '*':
				commands++
			case '$':
				r.skip = r.number + 2
			}
			r.line = 0
		}
	}
	return commands
}
