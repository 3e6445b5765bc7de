package sinktest

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// session is a connection that speaks HTTP/2. Flow control of answers is left to their shortness.
type session struct {
	server *Server
	raw    net.Conn
	n      int

	mu      sync.Mutex // guards what follows, and writing
	framer  *http2.Framer
	head    bytes.Buffer
	encoder *hpack.Encoder
	open    map[uint32]*stream
	highest uint32 // of the streams that were opened
	called  uint32 // the highest of those that were read to their end
	left    bool   // a GOAWAY was sent: streams above last are not processed
	last    uint32
}

// serveStreams speaks HTTP/2.
func (s *Server) serveStreams(c, raw net.Conn, n int) {
	if secure, ok := c.(*tls.Conn); ok && secure.Handshake() != nil {
		return
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	x := &session{server: s, raw: raw, n: n, framer: http2.NewFramer(c, c), open: map[uint32]*stream{}}
	x.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	x.encoder = hpack.NewEncoder(&x.head)
	var settings []http2.Setting
	if s.options.Streams > 0 {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: s.options.Streams})
	}
	_ = x.framer.WriteSettings(settings...)
	for {
		frame, err := x.framer.ReadFrame()
		if err != nil {
			break
		}
		x.take(frame)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.open {
		x.drop(id)
	}
}

func (x *session) take(frame http2.Frame) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := frame.Header().StreamID
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = x.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = x.framer.WritePing(true, f.Data)
		}
	case *http2.MetaHeadersFrame:
		s := &stream{session: x, id: id, header: http.Header{}, path: f.PseudoValue("path"), gone: make(chan struct{})}
		for _, h := range f.RegularFields() {
			s.header.Add(h.Name, h.Value)
		}
		x.open[id], x.highest = s, max(id, x.highest)
		if f.StreamEnded() {
			x.call(s)
		}
	case *http2.DataFrame:
		if n := uint32(len(f.Data())); n > 0 {
			_ = x.framer.WriteWindowUpdate(0, n)
			_ = x.framer.WriteWindowUpdate(id, n)
		}
		if s := x.open[id]; s != nil {
			if s.body = append(s.body, f.Data()...); f.StreamEnded() {
				x.call(s)
			}
		}
	case *http2.RSTStreamFrame:
		if s := x.open[id]; s != nil {
			s.cancelled.Store(true)
		}
		x.drop(id)
	}
}

func (x *session) call(s *stream) {
	call := &Call{
		ID: s.header.Get("Webhook-Id"), Header: s.header, Path: s.path, Payload: s.body, Connection: x.n, exchanger: s, raw: x.raw,
		ended: x.server.ended,
	}
	if !x.left && s.id > x.called && x.server.Leave != nil && x.server.Leave(call) {
		x.leave(max(s.id, 2)-2, http2.ErrCodeNo)
	}
	if x.left && s.id > x.last {
		return
	}
	x.called = max(s.id, x.called)
	x.server.saw(call)
	x.server.all.Go(func() { x.server.handle(call) })
}

// leave sends a GOAWAY, whose last stream is never later than that of one before. The caller holds the lock.
func (x *session) leave(last uint32, code http2.ErrCode) {
	if x.left {
		last = min(last, x.last)
	}
	x.left, x.last = true, last
	_ = x.framer.WriteGoAway(last, code, nil)
}

func (x *session) drop(id uint32) {
	if s := x.open[id]; s != nil {
		close(s.gone)
		delete(x.open, id)
	}
}

// stream is a request in HTTP/2.
type stream struct {
	session *session
	id      uint32
	header  http.Header
	path    string
	body    []byte
	gone    chan struct{}

	cancelled atomic.Bool // the client has reset it
}

// write writes frames, unless the client has given the stream up.
func (s *stream) write(frames func(*http2.Framer) error) error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	select {
	case <-s.gone:
		return net.ErrClosed
	default:
		return frames(s.session.framer)
	}
}

func (s *stream) Begin(status int, header ...string) {
	_ = s.write(func(f *http2.Framer) error {
		x := s.session
		x.head.Reset()
		_ = x.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
		for i := 0; i+1 < len(header); i += 2 {
			_ = x.encoder.WriteField(hpack.HeaderField{Name: strings.ToLower(header[i]), Value: header[i+1]})
		}
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: x.head.Bytes(), EndHeaders: true})
	})
}

func (s *stream) Body(b []byte) error {
	return s.write(func(f *http2.Framer) error { return f.WriteData(s.id, false, b) })
}

func (s *stream) End() {
	_ = s.write(func(f *http2.Framer) error { return f.WriteData(s.id, true, nil) })
}

func (s *stream) Gone() <-chan struct{} { return s.gone }

func (s *stream) Cancelled() bool { return s.cancelled.Load() }

// goAway says that what was opened so far is processed, or that this stream and later ones are not.
func (s *stream) goAway(processed bool, code uint32) {
	_ = s.write(func(*http2.Framer) error {
		last := s.session.highest
		if !processed {
			last = max(s.id, 2) - 2
		}
		s.session.leave(last, http2.ErrCode(code))
		return nil
	})
}

func (s *stream) reset(code uint32) {
	_ = s.write(func(f *http2.Framer) error { return f.WriteRSTStream(s.id, http2.ErrCode(code)) })
}
