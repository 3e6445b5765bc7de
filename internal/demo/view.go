package demo

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	frameInterval = 250 * time.Millisecond
	plainInterval = 2 * time.Second
)

// viewer shows a demo while it runs. Its methods are called by one goroutine.
type viewer interface {
	update(f frame)  // a new frame; a view may skip some
	say(line string) // an event
	close()          // the end; called once
}

// frame is the state of a demo at one moment.
type frame struct {
	elapsed, duration time.Duration
	rows              []frameRow
}

// frameRow is one campaign in a frame.
type frameRow struct {
	campaign  string
	rate      float64 // per second, as currently set
	achieved  float64 // per second, over about the last second
	delivered int
	waiting   int
	state     string
	about     string
}

// newViewer chooses the view: a live table if stdout is a terminal, plain lines otherwise; with JSON, the lines go to
// stderr. It returns the log for the daemons.
func newViewer(options *Options, s *scenario) (viewer, *slog.Logger) {
	out := options.Stdout
	switch {
	case options.JSON:
		out = options.Stderr
	case options.Terminal:
		return newTableView(options.Stdout, s), slog.New(slog.DiscardHandler) // logging must not write into the table
	}
	log := slog.New(slog.NewTextHandler(options.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	v := &plainView{out: out}
	v.say(fmt.Sprintf("pacer demo: %d campaigns, %d daemons, %s; nothing leaves this machine",
		len(s.campaigns), demoDaemons, s.duration))
	return v, log
}

// plainView writes a line from time to time.
type plainView struct {
	out  io.Writer
	next time.Duration // when the next line is due
	last bool          // whether the last frame was shown
}

func (v *plainView) update(f frame) {
	end := f.elapsed >= f.duration
	if v.last || f.elapsed < v.next && !end {
		return
	}
	v.last = end
	v.next += plainInterval
	cells := make([]string, 0, len(f.rows))
	for _, r := range f.rows {
		cell := fmt.Sprintf("%s %.0f/s", r.campaign, r.achieved)
		if r.state != string(delivery.StatusActive) {
			cell = r.campaign + " " + r.state
		}
		cells = append(cells, cell)
	}
	v.say(fmt.Sprintf("%4.1fs  %s", f.elapsed.Seconds(), strings.Join(cells, "  ")))
}

// A progress line that cannot be written is no reason to end the demo.
func (v *plainView) say(line string) { _, _ = fmt.Fprintln(v.out, line) }

func (v *plainView) close() {}

// liveShow makes frames from the state of the environment.
type liveShow struct {
	environment *environment
	start       time.Time
	past        []sample // about the last second, oldest first
}

// sample is the number of accepted jobs at an instant.
type sample struct {
	at       time.Time
	accepted map[string]int
}

func newShow(st *environment, start time.Time) *liveShow {
	return &liveShow{environment: st, start: start, past: []sample{{start, st.receiver.Accepted()}}}
}

// frame returns the frame at now.
func (s *liveShow) frame(now time.Time) frame {
	accepted := s.environment.receiver.Accepted()
	s.past = append(s.past, sample{now, accepted})
	for len(s.past) > 2 && now.Sub(s.past[1].at) >= time.Second {
		s.past = s.past[1:]
	}
	before := s.past[0]
	snapshot := s.environment.catalog.Snapshot()
	f := frame{elapsed: now.Sub(s.start), duration: s.environment.scenario.duration}
	s.environment.mu.Lock()
	defer s.environment.mu.Unlock()
	for _, c := range s.environment.scenario.campaigns {
		row := frameRow{
			campaign: c.id, about: c.about, delivered: accepted[c.id],
			waiting: max(s.environment.published[c.id]-accepted[c.id], 0),
		}
		if seconds := now.Sub(before.at).Seconds(); seconds > 0 {
			row.achieved = float64(accepted[c.id]-before.accepted[c.id]) / seconds
		}
		if campaign := snapshot.Campaign(c.id); campaign != nil {
			row.rate, row.state = campaign.Rate.PerSecond(), string(campaign.Status)
		}
		f.rows = append(f.rows, row)
	}
	return f
}
