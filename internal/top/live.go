package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// Live draws until ctx ends or q is pressed.
func (w *Watch) Live(ctx context.Context, out io.Writer, first *Frame) error {
	m := screen{watch: w, ctx: ctx, size: size{width: defaultWidth, height: 24}, last: first, frame: first.Arrange(nil, w.Query)}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// answer is the result of one look.
type answer struct {
	last  *Frame
	frame Frame
	err   error
}

// screen is the bubbletea model; it is replaced, never changed.
type screen struct {
	watch *Watch
	ctx   context.Context // of the commands, to which bubbletea passes none
	size  size
	last  *Frame // the last one received, with all campaigns
	frame Frame  // of it what is shown
	err   error  // of the last look
}

// Init implements tea.Model.
func (m screen) Init() tea.Cmd { return m.refresh() }

// refresh requests a new frame after an interval.
func (m screen) refresh() tea.Cmd {
	watch, before, ctx := *m.watch, m.last, m.ctx
	watch.Query.Limit = m.rows()
	return tea.Tick(watch.Interval, func(time.Time) tea.Msg {
		now, err := watch.Ask(ctx)
		if err != nil {
			return answer{err: err}
		}
		return answer{last: now, frame: now.Arrange(before, watch.Query)}
	})
}

// rows returns how many campaigns to request: never more than fit.
func (m screen) rows() int {
	if m.watch.Query.Limit > 0 {
		return min(m.watch.Query.Limit, m.size.height)
	}
	return m.size.height
}

// Update implements tea.Model.
func (m screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.size = size{message.Width, message.Height}
	case tea.KeyMsg:
		switch message.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "s":
			next := *m.watch
			next.Query.Sort = Orders[(slices.Index(Orders, next.Query.Sort)+1)%len(Orders)]
			m.watch = &next
		}
	case answer:
		m.err = message.err
		if message.err == nil {
			m.last, m.frame = message.last, message.frame
		}
		return m, m.refresh()
	}
	return m, nil
}

// View implements tea.Model.
func (m screen) View() string {
	foot := "s sorts by: " + string(m.watch.Query.Sort) + "   q quits"
	if m.err != nil {
		foot = styleBad.Render(fit(m.err.Error(), m.size.width))
	}
	return picture(&m.frame, m.size, foot)
}
