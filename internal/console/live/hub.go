// Package live streams what changes, fragments of pages and answers of the API, as server-sent events.
package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
)

const (
	// MaxStreams bounds the open streams: each holds a goroutine and a connection.
	MaxStreams = 64
	// MaxOfViewers bounds those that viewers open, who need no token: the others are kept for operators.
	MaxOfViewers = 48
	// writeWithin bounds one write: a sleeping laptop must not hold a stream for ever.
	writeWithin = 10 * time.Second
	// beatEvery is how often something is written although nothing has changed, so that proxies keep the connection.
	beatEvery = 15 * time.Second
	// RetryAfter is when a client that was refused may try again.
	RetryAfter = 10 * time.Second
)

// ErrFull means that no stream was begun: as many as may be are open, or the hub is closed.
var ErrFull = errors.New("too many streams are open already, or this process is being stopped")

// Hub serves streams until it is closed. Safe for concurrent use.
type Hub struct {
	guard *auth.Guard
	ended context.Context // by Close
	end   context.CancelFunc

	mu   sync.Mutex // guards open
	open int
}

// NewHub makes a Hub.
func NewHub(guard *auth.Guard) *Hub {
	h := &Hub{guard: guard}
	h.ended, h.end = context.WithCancel(context.Background())
	return h
}

// Close ends all streams, and refuses new ones.
func (h *Hub) Close() { h.end() }

// Open returns how many streams are open.
func (h *Hub) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

func (h *Hub) enter(role auth.Role) bool {
	most := MaxStreams
	if role <= auth.Viewer {
		most = MaxOfViewers
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended.Err() != nil || h.open >= most {
		return false
	}
	h.open++
	return true
}

func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
}

// Serve renders the fragment at each interval, and sends it when it has changed, until the client leaves, has the role no longer, or the hub
// is closed. A stream ends as well when the fragment cannot be rendered; clients then connect again. The error is ErrFull, before anything
// was written.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, role auth.Role, every time.Duration, render func(ctx context.Context) ([]byte, error)) error {
	if !h.enter(auth.Of(r.Context()).Role) {
		return ErrFull
	}
	defer h.leave()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx, which would collect the events
	s := stream{control: http.NewResponseController(w), w: w, last: r.Header.Get("Last-Event-ID"), wrote: time.Now()}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		who, err := h.guard.Identify(r) // again each time: a stream must not outlive its session or token
		if err != nil || who.Role < role {
			return nil
		}
		fragment, err := render(auth.With(r.Context(), who))
		if err != nil || s.send(fragment) != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		case <-h.ended.Done():
			return nil
		}
	}
}

// oneNewline makes all ends of lines the same: to a browser each of them ends a field of an event.
var oneNewline = strings.NewReplacer("\r\n", "\n", "\r", "\n")

type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	last    string // id of what was sent last: the hash of its content
	wrote   time.Time
	begun   bool
}

// send sends a fragment if it differs from the last one.
func (s *stream) send(fragment []byte) error {
	sum := fnv.New64a()
	_, _ = sum.Write(fragment) // never fails
	id := strconv.FormatUint(sum.Sum64(), 36)
	var event bytes.Buffer
	switch {
	case id != s.last:
		fmt.Fprintf(&event, "id: %s\n", id)
		for line := range strings.SplitSeq(oneNewline.Replace(string(fragment)), "\n") {
			fmt.Fprintf(&event, "data: %s\n", line)
		}
		event.WriteString("\n")
	case !s.begun || time.Since(s.wrote) >= beatEvery:
		event.WriteString(":\n\n")
	default:
		return nil
	}
	s.begun = true
	if err := s.control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return fmt.Errorf("bound a write: %w", err)
	}
	if _, err := s.w.Write(event.Bytes()); err != nil {
		return err
	}
	s.last, s.wrote = id, time.Now()
	return s.control.Flush()
}
