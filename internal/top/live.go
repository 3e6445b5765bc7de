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

const askWithin = 10 * time.Second

// Watch asks for frames periodically.
type Watch struct {
	Interval time.Duration                             // between two of them
	Query    Query                                     // its Limit is 0 for what fits the terminal
	Fetch    func(ctx context.Context) (*Frame, error) // with all campaigns
}

// Ask asks for a frame.
func (w *Watch) Ask(ctx context.Context) (*Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return w.Fetch(ctx)
}

// Live draws until ctx ends or q is pressed.
func (w *Watch) Live(ctx context.Context, out io.Writer, first *Frame) error {
	m := screen{Watch: *w, ctx: ctx, size: size{width: defaultWidth, height: 24}, last: first}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// screen is the bubbletea model; it is replaced, never changed.
type screen struct {
	Watch
	ctx          context.Context // of the commands, to which bubbletea passes none
	size         size
	before, last *Frame // the latest two; before is nil at first
	err          error  // of the last look
}

// Init implements tea.Model.
func (m screen) Init() tea.Cmd { return m.refresh() }

// refresh requests a new frame after an interval.
func (m screen) refresh() tea.Cmd {
	return tea.Tick(m.Interval, func(time.Time) tea.Msg {
		now, err := m.Ask(m.ctx)
		if err != nil {
			return err
		}
		return now
	})
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
			m.Query.Sort = Orders[(slices.Index(Orders, m.Query.Sort)+1)%len(Orders)]
		}
	case *Frame:
		m.before, m.last, m.err = m.last, message, nil
		return m, m.refresh()
	case error:
		m.err = message
		return m, m.refresh()
	}
	return m, nil
}

// View implements tea.Model. It shows no more campaigns than fit.
func (m screen) View() string {
	query := m.Query
	if query.Limit == 0 || query.Limit > m.size.height {
		query.Limit = m.size.height
	}
	foot := "s sorts by: " + string(query.Sort) + "   q quits"
	if m.err != nil {
		foot = styleBad.Render(fit(m.err.Error(), m.size.width))
	}
	frame := m.last.Arrange(m.before, query)
	return picture(&frame, m.size, foot)
}
