package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

const (
	askWithin = 10 * time.Second
	// resizedWithin is how soon a terminal of another size is drawn anew.
	resizedWithin = 250 * time.Millisecond
)

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

// Escape sequences of a terminal: another screen without a cursor, where lines are not wrapped, and back.
const (
	openScreen  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	closeScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Live draws on a terminal until ctx ends or q is pressed. Keys are read if in is a terminal as well.
func (w *Watch) Live(ctx context.Context, in io.Reader, out *os.File, first *Frame) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	keys := make(chan string)
	if f, ok := in.(*os.File); ok {
		if before, err := term.MakeRaw(int(f.Fd())); err == nil {
			defer func() { _ = term.Restore(int(f.Fd()), before) }() // as the shell does, too
			go readKeys(f, keys)
		}
	}
	looks := make(chan look)
	go w.look(ctx, looks)
	s, resized := screen{Watch: *w, last: first}, time.Tick(resizedWithin)
	_, _ = out.WriteString(openScreen) // an error comes again
	defer func() { _, _ = out.WriteString(closeScreen) }()
	for changed, drawn := true, (size{}); ; {
		if now := sizeOf(out); changed || now != drawn {
			drawn = now
			if _, err := out.WriteString("\x1b[H" + strings.ReplaceAll(s.draw(now), "\n", "\x1b[K\r\n") + "\x1b[K\x1b[J"); err != nil {
				return fmt.Errorf("draw on the terminal: %w", err)
			}
		}
		changed = true
		select {
		case <-ctx.Done():
			return nil
		case pressed := <-keys:
			if s.press(pressed) {
				return nil
			}
		case l := <-looks:
			if s.err = l.err; l.err == nil { // else the last frame stays
				s.before, s.last = s.last, l.frame
			}
		case <-resized:
			changed = false
		}
	}
}

// readKeys passes on what is typed. It ends with the process.
func readKeys(from io.Reader, keys chan<- string) {
	typed := make([]byte, 64)
	for {
		n, err := from.Read(typed)
		if err != nil {
			return
		}
		keys <- string(typed[:n])
	}
}

// sizeOf returns the size of a terminal.
func sizeOf(terminal *os.File) size {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width == 0 || height == 0 {
		return size{width: defaultWidth, height: 24}
	}
	return size{width, height}
}

// look is a frame, or why there is none.
type look struct {
	frame *Frame
	err   error
}

// look asks for a frame after each interval.
func (w *Watch) look(ctx context.Context, looks chan<- look) {
	for {
		select {
		case <-time.After(w.Interval):
		case <-ctx.Done():
			return
		}
		frame, err := w.Ask(ctx)
		select {
		case looks <- look{frame, err}:
		case <-ctx.Done():
			return
		}
	}
}

// screen is what Live shows.
type screen struct {
	Watch
	before, last *Frame // the latest two; before is nil at first
	err          error  // of the last look
}

// press acts on keys, and reports whether the user quits. Other keys than a letter or Escape alone begin with Escape.
func (s *screen) press(keys string) (quit bool) {
	if strings.HasPrefix(keys, "\x1b") {
		return keys == "\x1b"
	}
	for _, key := range keys {
		switch key {
		case 'q', '\x03': // Ctrl-C
			return true
		case 's':
			s.Query.Sort = Orders[(slices.Index(Orders, s.Query.Sort)+1)%len(Orders)]
		}
	}
	return false
}

// draw returns a picture with no more campaigns than fit.
func (s *screen) draw(within size) string {
	query := s.Query
	if query.Limit == 0 || query.Limit > within.height {
		query.Limit = within.height
	}
	foot := "s sorts by: " + query.Sort + "   q quits"
	if s.err != nil {
		foot = styleBad.Render(fit(s.err.Error(), within.width))
	}
	frame := s.last.Arrange(s.before, query)
	return picture(&frame, within, foot)
}
