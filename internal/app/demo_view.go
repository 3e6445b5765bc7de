package app

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

// demoView shows a demo while it runs. Its methods are called by one goroutine.
type demoView interface {
	update(f frame)  // a new picture; a view may skip some
	say(line string) // something happened
	close()          // no more; called once
}

// frame is one picture of a demo.
type frame struct {
	elapsed, duration time.Duration
	rows              []frameRow
}

// frameRow is one campaign in it.
type frameRow struct {
	campaign  string
	rate      float64 // per second, as set now
	achieved  float64 // per second, over the last second or so
	delivered int
	waiting   int
	state     string
	about     string
}

// newDemoView chooses how to show a demo: a live table where stdout is a terminal, plain lines otherwise; with JSON, the
// lines go to stderr. It returns the log that the daemons may write to meanwhile.
func newDemoView(options *DemoOptions, s *scene) (demoView, *slog.Logger) {
	out := options.Stdout
	switch {
	case options.JSON:
		out = options.Stderr
	case options.Terminal:
		return newTableView(options.Stdout, s), discardLog()
	}
	log := slog.New(slog.NewTextHandler(options.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	v := &plainView{out: out}
	v.say(fmt.Sprintf("pacer demo: %d campaigns, %d daemons, %s; nothing leaves this machine",
		len(s.campaigns), demoDaemons, s.duration))
	return v, log
}

// plainView writes a line now and then.
type plainView struct {
	out  io.Writer
	next time.Duration // when the next picture is due
	last bool          // the picture of the end was shown
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

// liveShow turns what the stage knows into frames.
type liveShow struct {
	stage *stage
	start time.Time
	past  []sample // the last second or so, oldest first
}

// sample is what had been accepted at an instant.
type sample struct {
	at       time.Time
	accepted map[string]int
}

func newShow(st *stage, start time.Time) *liveShow {
	return &liveShow{stage: st, start: start, past: []sample{{start, st.receiver.Accepted()}}}
}

// frame makes the picture at now.
func (s *liveShow) frame(now time.Time) frame {
	accepted := s.stage.receiver.Accepted()
	s.past = append(s.past, sample{now, accepted})
	for len(s.past) > 2 && now.Sub(s.past[1].at) >= time.Second {
		s.past = s.past[1:]
	}
	before := s.past[0]
	snapshot := s.stage.catalog.Snapshot()
	f := frame{elapsed: now.Sub(s.start), duration: s.stage.scene.duration}
	s.stage.record.mu.Lock()
	defer s.stage.record.mu.Unlock()
	for _, c := range s.stage.scene.campaigns {
		row := frameRow{
			campaign: c.id, about: c.about, delivered: accepted[c.id],
			waiting: max(s.stage.record.published[c.id]-accepted[c.id], 0),
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
