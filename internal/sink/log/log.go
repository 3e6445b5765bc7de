// Package log is the kinds log and discard, which accept every job at once. Log writes a line to the daemon's log for each,
// with the payload's size and not the payload, which may be personal data. Both may record each job as a line in a file, which
// shows the shape of a stream without a network:
//
//	<unix microseconds of dispatch> <campaign> <job id>
package log

import (
	"bufio"
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
	bufferSize = 64 << 10 // bytes; more than a line has
)

// Settings are those of both kinds.
type Settings struct {
	MaxInFlight int    `yaml:"max_in_flight" range:"1..65536"`
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

// New makes a log sink. It opens the file.
func New(c *Config, host base.Host) (*Sink, error) { return newSink(c.Record, true, host.Logger) }

// NewDiscard makes a discard sink. It opens the file.
func NewDiscard(c *Discard, host base.Host) (*Sink, error) {
	return newSink(c.Record, false, host.Logger)
}

// Sink accepts jobs. Deliver is safe for concurrent use, also before Run. It appends a job's line to a buffer, and writes the buffer to the
// file when it is full. Run does so every 100 ms, and Close at the end. Lines that cannot be written are lost.
//
// The file is appended to in whole lines, so several daemons may share it.
type Sink struct {
	base.Plain
	lines bool // each job has a line in the log
	log   *slog.Logger

	mu     sync.Mutex // guards the fields below
	file   *os.File   // nil for none
	buffer *bufio.Writer
	outage retry.Outage
}

func newSink(path string, lines bool, logger *slog.Logger) (s *Sink, err error) {
	s = &Sink{lines: lines, log: logger}
	if path == "" {
		return s, nil
	}
	s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644) //nolint:gosec // ids and times, for others to read
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	s.buffer = bufio.NewWriterSize(s.file, bufferSize)
	return s, nil
}

// Deliver records the job, if there is a file, and returns Delivered. The logged attempt counts from 1; job.Attempt counts the
// attempts before it.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job, _ *base.Exchange) delivery.Result {
	if s.file != nil {
		s.add(time.Now(), job)
	}
	if s.lines {
		s.log.LogAttrs(ctx, slog.LevelInfo, "job delivered to the log",
			slog.String("campaign", job.Campaign), slog.String("job", job.ID), slog.Int64("weight", job.Weight),
			slog.Int("attempt", job.Attempt+1), slog.String("content_type", job.ContentType), slog.Int("bytes", len(job.Payload)))
	}
	return delivery.Result{Class: delivery.Delivered}
}

func (s *Sink) add(at time.Time, job *delivery.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := append(strconv.AppendInt(s.buffer.AvailableBuffer(), at.UnixMicro(), 10), ' ')
	b = append(append(b, job.Campaign...), ' ')
	b = append(append(b, job.ID...), '\n')
	if len(b) > s.buffer.Available() {
		_ = s.write() // which logs an error
	}
	_, _ = s.buffer.Write(b) // there is room for it
}

// Run writes the buffer periodically until ctx is cancelled.
func (s *Sink) Run(ctx context.Context) error {
	if s.file != nil {
		retry.Every(ctx, flushEvery, func(time.Time) {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = s.write() // which logs an error
		})
	}
	return nil
}

// Check returns nil: the file is open.
func (s *Sink) Check(context.Context) error { return nil }

// Close writes the rest of the buffer and closes the file. Run must have returned.
func (s *Sink) Close() error {
	if s.file == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.write(), s.file.Close())
}

// write writes the buffer to the file, with mu held. The first error of an outage is logged.
func (s *Sink) write() error {
	if s.buffer.Buffered() == 0 {
		return nil
	}
	err := s.buffer.Flush()
	if err != nil {
		s.buffer.Reset(s.file)
		if s.outage.Failed() {
			s.log.Error("cannot write the record file; lines are lost until it can be written", "file", s.file.Name(), "error", err)
		}
		return fmt.Errorf("record: %w", err)
	}
	if _, over := s.outage.Worked(); over {
		s.log.Info("the record file can be written again", "file", s.file.Name())
	}
	return nil
}
