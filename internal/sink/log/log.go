// Package log is the kinds log and discard, which accept every job at once. Log writes a line to the daemon's log for each,
// with the payload's size and not the payload, which may be personal data. Both may record each job as a line in a file, which
// shows the shape of a stream without a network:
//
//	<unix microseconds of dispatch> <campaign> <job id>
package log

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
	maxBytes   = 16 << 20 // lines beyond this are dropped and counted while the file cannot be written
)

// Settings are those of both kinds.
type Settings struct {
	MaxInFlight int    `yaml:"max_in_flight"`
	Record      string `yaml:"record"` // file that gets a line per job; "" for none
}

// Config configures a log sink.
type Config struct{ Settings }

// Discard configures a discard sink.
type Discard struct{ Settings }

// Problems returns nil: every value is valid.
func (c *Settings) Problems() []string { return nil }

// Entry returns what the router needs to know of the sink.
func (c *Settings) Entry() base.Entry { return base.Entry{MaxInFlight: c.MaxInFlight} }

var defaults = Settings{MaxInFlight: 1024}

// Default returns the default configuration of a log sink.
func Default() *Config { return &Config{defaults} }

// DefaultDiscard returns the default configuration of a discard sink.
func DefaultDiscard() *Discard { return &Discard{defaults} }

// New makes a log sink.
func New(c *Config, host base.Host) (*Sink, error) { return newSink(c.Record, true, host.Logger), nil }

// NewDiscard makes a discard sink.
func NewDiscard(c *Discard, host base.Host) (*Sink, error) {
	return newSink(c.Record, false, host.Logger), nil
}

// Sink accepts jobs. Deliver is safe for concurrent use, also before Run, and only appends a job's line to a buffer. Run writes
// the buffer to the file every 100 ms, and Close writes the rest. Without Run the buffer grows to 16 MiB, and further
// lines are lost.
//
// The file is appended to in whole lines, so several daemons may share it.
type Sink struct {
	base.Plain
	path  string // "" for no file
	lines bool   // each job has a line in the log
	log   *slog.Logger

	mu      sync.Mutex // guards buf and dropped; held for an append or a swap only, never for I/O
	buf     []byte
	dropped int64

	write  sync.Mutex // guards the fields below; held during I/O, but Deliver never takes it
	file   *os.File   // nil until it is needed
	outage retry.Outage
}

func newSink(path string, lines bool, logger *slog.Logger) *Sink {
	return &Sink{path: path, lines: lines, log: logger}
}

// Deliver records the job, if there is a file, and returns Delivered. The logged attempt counts from 1; job.Attempt counts the
// attempts before it.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	if s.path != "" {
		s.add(time.Now(), job)
	}
	if s.lines {
		s.log.LogAttrs(ctx, slog.LevelInfo, "job delivered to the log",
			slog.String("campaign", job.Campaign), slog.String("job", job.ID), slog.Int64("weight", job.Weight),
			slog.Int("attempt", job.Attempt+1), slog.String("content_type", job.ContentType), slog.Int("bytes", len(job.Payload)))
	}
	return delivery.Result{Class: delivery.Delivered}
}

// Try is Deliver: there is no request.
func (s *Sink) Try(ctx context.Context, job *delivery.Job) (res delivery.Result, request, answer string) {
	return s.Deliver(ctx, job), "", ""
}

func (s *Sink) add(at time.Time, job *delivery.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf) >= maxBytes {
		s.dropped++
		return
	}
	b := append(strconv.AppendInt(s.buf, at.UnixMicro(), 10), ' ')
	b = append(append(b, job.Campaign...), ' ')
	s.buf = append(append(b, job.ID...), '\n')
}

// Run opens the file, or returns the error of that, and writes the buffer periodically until ctx is cancelled. A later
// write that fails is logged and retried at the next tick.
func (s *Sink) Run(ctx context.Context) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	retry.Every(ctx, flushEvery, func(time.Time) { _ = s.flush() }) // which logs an error, and tries again
	return s.flush()
}

// Check returns an error unless the file can be opened for appending; it creates the file.
func (s *Sink) Check(context.Context) error {
	s.write.Lock()
	defer s.write.Unlock()
	return s.open()
}

func (s *Sink) open() (err error) {
	if s.path == "" || s.file != nil {
		return nil
	}
	s.file, err = os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644) //nolint:gosec // ids and times, for others to read
	if err != nil {
		s.file = nil
		return fmt.Errorf("record: %w", err)
	}
	return nil
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

// flush writes the buffer to the file. Unwritten bytes stay at the front of the buffer.
func (s *Sink) flush() error {
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	b, dropped := s.buf, s.dropped
	s.buf, s.dropped = nil, 0
	s.mu.Unlock()
	if dropped > 0 {
		s.log.Error("lines of a record file were lost: it could not be written in time", "file", s.path, "lines", dropped)
	}
	if len(b) == 0 {
		return nil
	}
	err, n := s.open(), 0
	if err == nil {
		if n, err = s.file.Write(b); err != nil {
			err = fmt.Errorf("record: %w", err)
		}
	}
	if err != nil {
		s.mu.Lock()
		s.buf = append(b[n:len(b):len(b)], s.buf...)
		s.mu.Unlock()
		if s.outage.Failed() {
			s.log.Error("cannot write the record file; trying again", "file", s.path, "error", err)
		}
		return err
	}
	if _, over := s.outage.Worked(); over {
		s.log.Info("the record file can be written again", "file", s.path)
	}
	return nil
}
