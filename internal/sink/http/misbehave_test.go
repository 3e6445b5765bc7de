package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// scripted is a server of HTTP/1.1 that answers each request by writing what it likes, and closes the connection when that returns false.
func scripted(t *testing.T, answer func(c net.Conn, n int32) bool) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	return "http://" + sinktest.Accept(t, func(c net.Conn) {
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if !answer(c, requests.Add(1)) {
				return
			}
		}
	}), requests
}

// endless writes a text until the client has had enough.
func endless(c net.Conn, text string, pause time.Duration) {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// TestMisbehavingDestinations: the sink bounds every answer in time and bytes, and the result says what the answer means. No answer makes
// it send a request twice.
func TestMisbehavingDestinations(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	const short, hungUp = 2 * time.Second, "closed the connection before it answered; the request may"
	for name, tt := range map[string]struct {
		text    string // that is written, before the connection is closed
		then    string // and then again and again
		pause   time.Duration
		timeout time.Duration // 0: long
		rules   bool          // that look at the body

		class  delivery.ResultClass
		status int
		wait   time.Duration
		detail string
	}{
		"nothing":                    {class: delivery.Temporary, detail: hungUp},
		"half an answer":             {text: "HTTP/1.1 200 O", class: delivery.Temporary, detail: hungUp},
		"another protocol":           {text: "220 swordfish ready\r\n\r\n", class: delivery.Temporary, detail: "something that is not HTTP"},
		"a header that trickles":     {text: "HTTP/1.1 200 OK\r\nX: ", then: "x", pause: 20 * time.Millisecond, timeout: short, class: delivery.Temporary, detail: "within 2s"},
		"a header without an end":    {text: "HTTP/1.1 200 OK\r\n", then: "X-Y: " + strings.Repeat("z", 1000) + "\r\n", class: delivery.Temporary, detail: "header"},
		"a status line without end":  {text: "HTTP/1.1 200 ", then: strings.Repeat("O", 4096), class: delivery.Temporary, detail: "header"},
		"1xx, and then an answer":    {text: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n", class: delivery.Delivered, status: 202},
		"a flood of 1xx":             {then: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", class: delivery.Temporary, detail: "header"},
		"101 that goes on":           {text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", then: "x", pause: 20 * time.Millisecond, timeout: short, class: delivery.Misconfigured, status: 101},
		"101 that rules look at":     {text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", then: "x", pause: 20 * time.Millisecond, timeout: short, rules: true, class: delivery.Misconfigured, status: 101},
		"too little of a body":       {text: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", class: delivery.Delivered, status: 200},
		"too little, and rules":      {text: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", rules: true, class: delivery.Temporary, status: 200, detail: "did not come"},
		"too much of a body":         {text: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", class: delivery.Delivered, status: 200},
		"two lengths":                {text: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhello", class: delivery.Temporary, detail: "not HTTP"},
		"a length below zero":        {text: "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhello", class: delivery.Temporary, detail: "not HTTP"},
		"a length that is no number": {text: "HTTP/1.1 200 OK\r\nContent-Length: swordfish\r\n\r\nhello", class: delivery.Temporary, detail: "not HTTP"},
		"a coding that is unknown":   {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: swordfish\r\n\r\nhello", class: delivery.Temporary, detail: "not HTTP"},
		"a chunk that is none":       {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nswordfish\r\nhello", class: delivery.Delivered, status: 200},
		"a chunk that is none, and rules": {
			text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nswordfish\r\nhello", rules: true, class: delivery.Temporary, status: 200, detail: "did not come",
		},
		"a status that is none":       {text: "HTTP/1.1 xyz swordfish\r\n\r\n", class: delivery.Temporary, detail: "not HTTP"},
		"HTTP/1.0 until it closes":    {text: "HTTP/1.0 200 OK\r\n\r\nhello", class: delivery.Delivered, status: 200},
		"an HTTP that is unknown":     {text: "HTTP/7.1 200 OK\r\nContent-Length: 0\r\n\r\n", class: delivery.Delivered, status: 200},
		"a bomb of gzip":              {text: "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + fmt.Sprint(bomb.Len()) + "\r\n\r\n" + bomb.String(), rules: true, class: delivery.Delivered, status: 200},
		"a header with a NUL":         {text: "HTTP/1.1 200 OK\r\nX: a\x00swordfish\r\n\r\n", class: delivery.Temporary, detail: "not HTTP"},
		"Retry-After twice":           {text: "HTTP/1.1 429 No\r\nRetry-After: 3\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n", class: delivery.Throttled, status: 429, wait: 3 * time.Second},
		"503 and a body without end":  {text: "HTTP/1.1 503 No\r\nRetry-After: 5\r\n\r\n", then: strings.Repeat("x", 4096), class: delivery.Throttled, status: 503, wait: 5 * time.Second},
		"a trailer without an end":    {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n", then: "X: " + strings.Repeat("x", 4096) + "\r\n", class: delivery.Delivered, status: 200},
		"a trailer, and rules":        {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n", then: "X: " + strings.Repeat("x", 4096) + "\r\n", rules: true, class: delivery.Temporary, status: 200, detail: "did not come"},
		"a head in pieces, and slow":  {text: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", then: "x", pause: 30 * time.Millisecond, class: delivery.Delivered, status: 200},
		"a name of a header too long": {text: "HTTP/1.1 200 OK\r\n" + strings.Repeat("x", 1<<20) + ": y\r\n\r\n", class: delivery.Temporary, detail: "header"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := scripted(t, func(c net.Conn, _ int32) bool {
				if _, err := io.WriteString(c, tt.text); err == nil && tt.then != "" {
					endless(c, tt.then, tt.pause)
				}
				return false
			})
			s := newSink(t, url, func(c *Config) {
				if c.Timeout = 20 * time.Second; tt.timeout > 0 {
					c.Timeout = tt.timeout
				}
				if tt.rules {
					c.Rules = map[string]string{"rejected": `body.error == "x"`}
				}
			})
			r := s.Deliver(t.Context(), job(), nil)
			if r.Class != tt.class || r.Status != tt.status || r.RetryAfter != tt.wait || !strings.Contains(r.Detail, tt.detail) || strings.Contains(r.Detail, "swordfish") {
				t.Errorf("%+v, want %s, %d, %s with %q", r, tt.class, tt.status, tt.wait, tt.detail)
			}
			if r.Status == 0 && r.By != delivery.ByNobody {
				t.Errorf("answered by %d", r.By)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("sent %d times", n)
			}
		})
	}
}

// TestADestinationThatSpeaksFirst: such as a server of mail. The request may have been written by then, or not.
func TestADestinationThatSpeaksFirst(t *testing.T) {
	at := sinktest.Accept(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 swordfish ready\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	s := newSink(t, "http://"+at)
	for range 100 {
		r := s.Deliver(t.Context(), job(), nil)
		closed := strings.Contains(r.Detail, "use of closed network connection") // by net/http, which has read the greeting
		if r.Class != delivery.Temporary && r.Class != delivery.Unreachable || !closed && !strings.HasPrefix(r.Detail, at+" answered something that is not HTTP") {
			t.Fatalf("%+v", r)
		}
	}
}
