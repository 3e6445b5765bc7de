// Package record wraps a sink so that every job dispatched to it is recorded as a line in a file:
//
//	<unix microseconds of dispatch> <campaign> <job id>
//
// The file shows the shape of a stream without a network.
package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/base"
)

const (
	flushEvery = 100 * time.Millisecond
	kickBytes  = 256 << 10 // a buffer this full is flushed without waiting for the tick
	maxBytes   = 16 << 20  // lines beyond this are dropped and counted while the file cannot be written
)

// Config configures a sink that accepts every job at once, with an optional record.
type Config struct {
	MaxInFlight int    `yaml:"max_in_flight"`
	Record      string `yaml:"record"` // file that gets a line per job; "" for none
}

// Default returns the default configuration of such a sink.
func Default() Config { return Config{MaxInFlight: 1024} }

// Problems returns nil: every value is valid.
func (c *Config) Problems() []string { return nil }

// Entry returns what the router needs to know of the sink.
func (c *Config) Entry() base.Entry { return base.Entry{MaxInFlight: c.MaxInFlight} }

// Next is the wrapped sink.
type Next interface {
	Deliver(ctx context.Context, job *delivery.Job) delivery.Result
}

// Sink records each job at its dispatch and then delivers it to the wrapped sink. Deliver is safe for concurrent use,
// also before Run; it only appends to a buffer. Run writes the buffer to the file every 100 ms, and Close writes the
// rest. Without Run the buffer grows to 16 MiB, and further lines are lost.
//
// The file is appended to in whole lines, so several daemons may share it.
type Sink struct {
	next Next
	path string
	log  *slog.Logger
	kick retry.Signal // the buffer is full enough to be written now

	mu      sync.Mutex // guards buf and dropped; held for an append or a swap only, never for I/O
	buf     []byte
	dropped int64

	// write serialises writers of the file (the goroutine of Run, and Close after it), which own the fields below. It
	// is held during I/O, but Deliver never takes it.
	write  sync.Mutex
	file   *os.File
	spare  []byte       // swapped with buf by Run, so that the steady state allocates nothing
	outage retry.Outage // of the file
}

// New makes a Sink that records jobs to the file at path and passes them on to next. The file is opened by Run, or by
// the first write.
func New(path string, next Next, logger *slog.Logger) *Sink {
	return &Sink{next: next, path: path, log: logger, kick: retry.NewSignal()}
}

// Deliver records the job and passes it on.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	s.add(time.Now(), job)
	return s.next.Deliver(ctx, job)
}

func (s *Sink) add(at time.Time, job *delivery.Job) {
	s.mu.Lock()
	if len(s.buf) >= maxBytes {
		s.dropped++
		s.mu.Unlock()
		return
	}
	b := strconv.AppendInt(s.buf, at.UnixMicro(), 10)
	b = append(b, ' ')
	b = append(b, job.Campaign...)
	b = append(b, ' ')
	b = append(b, job.ID...)
	b = append(b, '\n')
	s.buf = b
	full := len(b) >= kickBytes
	s.mu.Unlock()
	if full {
		s.kick.Send()
	}
}

// Run opens the file, or returns the error of that, and writes the buffer periodically until ctx is cancelled. A later
// write that fails is logged and retried at the next tick.
func (s *Sink) Run(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.flush()
		case <-tick.C:
		case <-s.kick:
		}
		if err := s.flush(); err != nil {
			s.complain(err)
		}
	}
}

// Check returns an error unless the file can be opened for appending; it creates the file.
func (s *Sink) Check(context.Context) error {
	f, err := openFile(s.path)
	if err != nil {
		return err
	}
	return f.Close()
}

// Close writes the rest of the buffer and closes the file. Run must have returned.
func (s *Sink) Close() error {
	err := s.flush()
	s.write.Lock()
	defer s.write.Unlock()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
		s.file = nil
	}
	return err
}

func (s *Sink) open() error {
	s.write.Lock()
	defer s.write.Unlock()
	return s.openLocked()
}

func (s *Sink) openLocked() error {
	if s.file != nil {
		return nil
	}
	var err error
	s.file, err = openFile(s.path)
	return err
}

func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644) //nolint:gosec // ids and times, for others to read
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return f, nil
}

// flush writes the buffer to the file. What could not be written stays at the front of the buffer.
func (s *Sink) flush() error {
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	b, dropped := s.buf, s.dropped
	s.buf, s.dropped = s.spare[:0], 0
	s.mu.Unlock()
	s.spare = nil
	if dropped > 0 {
		s.log.Error("lines of a record file were lost: it could not be written in time", "file", s.path, "lines", dropped)
	}
	if len(b) == 0 {
		s.spare = b
		return nil
	}
	err := s.openLocked()
	n := 0
	if err == nil {
		if n, err = s.file.Write(b); err != nil {
			err = fmt.Errorf("record: %w", err)
		}
	}
	if err != nil {
		s.mu.Lock()
		s.buf = append(b[n:len(b):len(b)], s.buf...)
		s.mu.Unlock()
		return err
	}
	if _, over := s.outage.Worked(); over {
		s.log.Info("the record file can be written again", "file", s.path)
	}
	if cap(b) <= 4*kickBytes { // release a buffer that a stall has made large
		s.spare = b
	}
	return nil
}

// complain logs the first of consecutive failures.
func (s *Sink) complain(err error) {
	if s.outage.Failed() {
		s.log.Error("cannot write the record file; trying again", "file", s.path, "error", err)
	}
}
