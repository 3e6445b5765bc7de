package demo

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/top"
)

const (
	frameInterval = 250 * time.Millisecond
	plainInterval = 2 * time.Second
	maxEvents     = 6 // past ones that are shown below the table
	barWidth      = 50
)

// view shows a demo while it runs: a table that is drawn again in its place, or a line from time to time. One goroutine uses it. What cannot be
// written is no reason to end the demo.
type view struct {
	out    io.Writer
	table  bool
	title  string
	frame  frame
	events []string
	drawn  int           // lines of the table
	next   time.Duration // when the next line is due
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

// newView chooses the view: a table if stdout is a terminal, lines otherwise; with JSON, the lines go to stderr. It returns the log for the
// daemons.
func newView(options *Options, s *scenario) (*view, *slog.Logger) {
	if options.Terminal && !options.JSON { // logging must not write into the table
		return &view{out: options.Stdout, table: true, title: fmt.Sprintf("%d daemons share %d campaigns; one broker, one Redis, all in this process",
			demoDaemons, len(s.campaigns))}, slog.New(slog.DiscardHandler)
	}
	v := &view{out: options.Stdout}
	if options.JSON {
		v.out = options.Stderr
	}
	v.say(fmt.Sprintf("pacer demo: %d campaigns, %d daemons, %s; nothing leaves this machine", len(s.campaigns), demoDaemons, s.duration))
	return v, slog.New(slog.NewTextHandler(options.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// update shows a frame, or skips it.
func (v *view) update(f frame) {
	if v.frame = f; v.table {
		v.draw()
		return
	}
	end := f.elapsed >= f.duration
	if f.elapsed < v.next && (!end || v.next == math.MaxInt64) {
		return
	}
	if v.next += plainInterval; end {
		v.next = math.MaxInt64
	}
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

// say shows an event.
func (v *view) say(line string) {
	if !v.table {
		_, _ = fmt.Fprintln(v.out, line)
		return
	}
	v.events = append(v.events, line)
	v.draw()
}

// draw draws the table in the place of the last one. Lines are not wrapped meanwhile, so that each is one line of the terminal.
func (v *view) draw() {
	up, text := "", v.picture()
	if v.drawn > 0 {
		up = fmt.Sprintf("\x1b[%dA", v.drawn)
	}
	v.drawn = strings.Count(text, "\n")
	_, _ = io.WriteString(v.out, "\x1b[?7l"+up+strings.ReplaceAll(text, "\n", "\x1b[K\n")+"\x1b[J\x1b[?7h")
}

// picture is the table.
func (v *view) picture() string {
	var b strings.Builder
	b.WriteString(top.StyleTitle.Render("pacer demo") + "  " + v.title + "\n\n")
	if len(v.frame.rows) == 0 {
		b.WriteString("starting …\n")
	} else {
		b.WriteString(top.StyleHead.Render(fmt.Sprintf("%-10s %9s %9s %10s %9s  %-8s %s",
			"campaign", "rate/s", "now/s", "delivered", "waiting", "state", "")) + "\n")
	}
	for _, r := range v.frame.rows {
		style := top.StylePaused
		if r.state == string(delivery.StatusActive) {
			style = top.StyleGood
		}
		fmt.Fprintf(&b, "%-10s %9.0f %9.0f %10d %9d  %s %s\n",
			r.campaign, r.rate, r.achieved, r.delivered, r.waiting, style.Render(fmt.Sprintf("%-8s", r.state)), top.StyleHead.Render(r.about))
	}
	if f := v.frame; f.duration > 0 {
		fmt.Fprintf(&b, "\n%s %4.1f / %.0f s\n", top.Bar(float64(f.elapsed)/float64(f.duration), barWidth), min(f.elapsed, f.duration).Seconds(), f.duration.Seconds())
	}
	for _, e := range v.events[max(0, len(v.events)-maxEvents):] {
		b.WriteString("  " + e + "\n")
	}
	return b.String()
}

// sample is the number of accepted jobs at an instant.
type sample struct {
	at       time.Time
	accepted map[string]int
}

// show makes frames from the state of the environment.
type show struct {
	environment *environment
	start       time.Time
	past        []sample // about the last second, oldest first
}

// frame returns the frame at now.
func (s *show) frame(now time.Time) frame {
	st, accepted := s.environment, s.environment.receiver.Accepted()
	s.past = append(s.past, sample{now, accepted})
	for len(s.past) > 2 && now.Sub(s.past[1].at) >= time.Second {
		s.past = s.past[1:]
	}
	before := s.past[0]
	snapshot := st.catalog.Snapshot()
	f := frame{elapsed: now.Sub(s.start), duration: st.scenario.duration}
	for i := range st.scenario.campaigns {
		c := &st.scenario.campaigns[i]
		row := frameRow{
			campaign: c.id, about: c.about, delivered: accepted[c.id], waiting: max(c.published(int(st.waves.Load()))-accepted[c.id], 0),
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
