// Package record wraps a sink so that every job that is dispatched to it leaves a line in a file:
//
//	<unix microseconds of dispatch> <campaign> <job id>
//
// so that the shape of a stream can be checked without a network.
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
)

const (
	flushEvery = 100 * time.Millisecond
	kickBytes  = 256 << 10 // a buffer this full is flushed without waiting for the tick
	maxBytes   = 16 << 20  // while the file cannot be written, lines beyond this are dropped and counted
)

// Next is the sink that is wrapped.
type Next interface {
	Deliver(ctx context.Context, job *delivery.Job) delivery.Result
}

// Sink records each job at its dispatch and then delivers it to the wrapped sink. Deliver may be called by any number
// of goroutines, before Run as well; it only appends to a buffer. Run writes the buffer to the file every 100 ms,
// Close what is left. Without Run the buffer grows to 16 MiB, and lines beyond it are lost.
//
// The file is appended to in whole lines, so several daemons may share one.
type Sink struct {
	next Next
	path string
	log  *slog.Logger
	kick chan struct{} // room for one: the buffer is worth a write now

	mu      sync.Mutex // guards buf and dropped; held for an append or a swap only, never for I/O
	buf     []byte
	dropped int64

	// write serialises writers of the file (Run's goroutine, and Close after it), which own what follows. It is held
	// during I/O, but Deliver never takes it.
	write  sync.Mutex
	file   *os.File
	spare  []byte // what Run swaps buf with, so that steady state allocates nothing
	failed bool   // the last write failed, and that was logged
}

// New makes a Sink that records to the file at path what it passes on to next. The file is opened by Run, or by the
// first write.
func New(path string, next Next, logger *slog.Logger) *Sink {
	return &Sink{next: next, path: path, log: logger, kick: make(chan struct{}, 1)}
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
		select {
		case s.kick <- struct{}{}:
		default: // one is pending already
		}
	}
}

// Run opens the file, failing if that is impossible, and flushes until ctx is cancelled. A write that fails later is
// logged and tried again with the next tick.
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

// Check tells whether the file can be opened for appending; it creates it.
func (s *Sink) Check(context.Context) error {
	f, err := openFile(s.path)
	if err != nil {
		return err
	}
	return f.Close()
}

// Close writes what is buffered and closes the file. Run must have returned.
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
	f, err := openFile(s.path)
	if err != nil {
		return err
	}
	s.file = f
	return nil
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
	if s.failed {
		s.failed = false
		s.log.Info("the record file can be written again", "file", s.path)
	}
	if cap(b) <= 4*kickBytes { // do not keep what one stall made large
		s.spare = b
	}
	return nil
}

// complain logs the first of a row of failures.
func (s *Sink) complain(err error) {
	s.write.Lock()
	first := !s.failed
	s.failed = true
	s.write.Unlock()
	if first {
		s.log.Error("cannot write the record file; trying again", "file", s.path, "error", err)
	}
}
