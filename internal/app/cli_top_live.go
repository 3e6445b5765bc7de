package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/pacer/pacer/internal/top"
)

// live draws until ctx ends or q is pressed.
func (w *topWatch) live(ctx context.Context, out io.Writer, first *top.Sample) error {
	m := topModel{watch: w, ctx: ctx, size: topSize{width: defaultTopWidth, height: 24}, sample: first}
	m.frame = w.frame(ctx, nil, first)
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// topLook is the outcome of one look at the daemon.
type topLook struct {
	sample *top.Sample
	frame  top.Frame
	err    error
}

// topModel is what is drawn; it is replaced, never changed.
type topModel struct {
	watch  *topWatch
	ctx    context.Context // of the commands, which bubbletea gives none
	size   topSize
	sample *top.Sample // the last that came
	frame  top.Frame
	err    error // of the last look
}

// Init implements tea.Model.
func (m topModel) Init() tea.Cmd { return m.look() }

// look asks again after an interval.
func (m topModel) look() tea.Cmd {
	watch, before, ctx := *m.watch, m.sample, m.ctx
	watch.query.Limit = m.rows()
	return tea.Tick(watch.interval, func(time.Time) tea.Msg {
		now, err := watch.ask(ctx)
		if err != nil {
			return topLook{err: err}
		}
		return topLook{sample: now, frame: watch.frame(ctx, before, now)}
	})
}

// rows is how many campaigns are asked for: never more than fit.
func (m topModel) rows() int {
	if m.watch.query.Limit > 0 {
		return min(m.watch.query.Limit, m.size.height)
	}
	return m.size.height
}

// Update implements tea.Model.
func (m topModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.size = topSize{message.Width, message.Height}
	case tea.KeyMsg:
		switch message.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "s":
			next := *m.watch
			next.query.Sort = top.Orders[(slices.Index(top.Orders, next.query.Sort)+1)%len(top.Orders)]
			m.watch = &next
		}
	case topLook:
		m.err = message.err
		if message.err == nil {
			m.sample, m.frame = message.sample, message.frame
		}
		return m, m.look()
	}
	return m, nil
}

// View implements tea.Model.
func (m topModel) View() string {
	foot := "s sorts by: " + string(m.watch.query.Sort) + "   q quits"
	if m.err != nil {
		foot = styleBad.Render(fit(m.err.Error(), m.size.width))
	}
	return topText(&m.frame, m.size, foot)
}
