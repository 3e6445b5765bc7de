package demo

import (
	"fmt"
	"io"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/top"
)

// maxEvents is the number of past events shown below the table.
const maxEvents = 6

// tableView draws a table and redraws it in place. The drawing program runs in a goroutine of its own; close waits for
// it.
type tableView struct {
	program *tea.Program
	done    chan struct{}
}

func newTableView(out io.Writer, s *scenario) *tableView {
	// The caller handles keys and signals: an interrupt ends the demo, not only the view.
	v := &tableView{
		program: tea.NewProgram(tableModel{scenario: s},
			tea.WithOutput(out), tea.WithInput(nil), tea.WithoutSignalHandler()),
		done: make(chan struct{}),
	}
	go func() {
		defer close(v.done)
		_, _ = v.program.Run() // a failing view is no reason to end the demo
	}()
	return v
}

func (v *tableView) update(f frame)  { v.program.Send(f) }
func (v *tableView) say(line string) { v.program.Send(event(line)) }

func (v *tableView) close() {
	v.program.Quit()
	<-v.done
}

// event is the bubbletea message of an event.
type event string

// tableModel is the bubbletea model; it is replaced, never changed.
type tableModel struct {
	scenario *scenario
	frame    frame
	events   []string
}

// Init implements tea.Model.
func (m tableModel) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m tableModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case frame:
		m.frame = message
	case event:
		events := append(append([]string(nil), m.events...), string(message))
		m.events = events[max(0, len(events)-maxEvents):]
	}
	return m, nil
}

// View implements tea.Model.
func (m tableModel) View() string {
	var b strings.Builder
	b.WriteString(top.StyleTitle.Render("pacer demo") + fmt.Sprintf("  %d daemons share %d campaigns; one broker, one Redis, all in this process\n\n",
		demoDaemons, len(m.scenario.campaigns)))
	if len(m.frame.rows) == 0 {
		b.WriteString("starting …\n")
	} else {
		b.WriteString(top.StyleHead.Render(fmt.Sprintf("%-10s %9s %9s %10s %9s  %-8s %s",
			"campaign", "rate/s", "now/s", "delivered", "waiting", "state", "")) + "\n")
	}
	for _, r := range m.frame.rows {
		b.WriteString(tableRow(r) + "\n")
	}
	if m.frame.duration > 0 {
		b.WriteString("\n" + progressBar(m.frame) + "\n")
	}
	for _, e := range m.events {
		b.WriteString("  " + e + "\n")
	}
	return b.String()
}

func tableRow(r frameRow) string {
	state := fmt.Sprintf("%-8s", r.state)
	if r.state == string(delivery.StatusActive) {
		state = top.StyleGood.Render(state)
	} else {
		state = top.StylePaused.Render(state)
	}
	return fmt.Sprintf("%-10s %9.0f %9.0f %10d %9d  %s %s",
		r.campaign, r.rate, r.achieved, r.delivered, r.waiting, state, top.StyleHead.Render(r.about))
}

func progressBar(f frame) string {
	const width = 50
	return fmt.Sprintf("%s %4.1f / %.0f s", top.Bar(float64(f.elapsed)/float64(max(f.duration, 1)), width),
		min(f.elapsed, f.duration).Seconds(), f.duration.Seconds())
}
