package app

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/pacer/pacer/internal/top"
)

// topSize is the room for a picture, in characters.
type topSize struct{ width, height int }

// wideTop is the width from which a bar shows how near a campaign is to its rate.
const wideTop = 100

// columns of the table after the campaign's name.
const (
	topColumns     = " %9s %9s %8s %7s %7s %7s %6s"
	topColumnsWide = 60
	topBar         = 16
)

var styleBad = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))

// topText draws a frame within the size: the daemon, its quotas, its campaigns, and a line at the foot. Where there is
// little room, quotas get a quarter of it.
func topText(f *top.Frame, size topSize, foot string) string {
	lines := append(topHead(f, size.width), "")
	if quotas := topQuotas(f, size.width, max(2, size.height/4)); len(quotas) > 0 {
		lines = append(append(lines, quotas...), "")
	}
	lines = append(lines, topTable(f, size.width, size.height-len(lines)-1)...)
	if foot != "" {
		lines = append(lines, foot)
	}
	return strings.Join(lines[:min(len(lines), size.height)], "\n")
}

// topHead says how the daemon is.
func topHead(f *top.Frame, width int) []string {
	state := styleGood.Render("ready")
	if !f.Ready {
		state = stylePaused.Render("not ready: " + fit(f.Reason, max(10, width-len(f.Address)-40)))
	}
	d := &f.Daemon
	lines := []string{
		styleTitle.Render("pacer top") + "  " + f.Address + "  " + state + "  " + f.At.Format(time.TimeOnly),
		fit(fmt.Sprintf("sends %s/s of %s/s   forfeits %s/s   lateness p99 %s   quantum %s", number(f.Total.Sent),
			number(f.Total.SendRate), number(d.Forfeited), milliseconds(d.LatenessP99), milliseconds(&d.Quantum)), width),
	}
	sinks := make([]string, 0, len(f.Sinks))
	for _, s := range f.Sinks {
		sinks = append(sinks, s.Sink+" "+number(&s.InFlight))
	}
	lines = append(lines, fit(fmt.Sprintf("in memory %s   lanes read %.1fx   in flight: %s", number(&d.Queued), d.ReadFactor,
		strings.Join(sinks, ", ")), width))
	if d.Stalled > 0 {
		lines = append(lines, styleBad.Render(fit(number(&d.Stalled)+" partitions make no progress though they could; see the log", width)))
	}
	return lines
}

// topQuotas shows the windows with the least left, in so many lines.
func topQuotas(f *top.Frame, width, room int) []string {
	if len(f.Quotas) == 0 {
		return nil
	}
	name := min(30, max(16, width-60))
	lines := []string{styleHead.Render(fit(fmt.Sprintf("%-*s %-8s %-*s %-21s %s", name, "quota", "window", topBar, "left", "", "denied/s"), width))}
	for i := range f.Quotas {
		if left := len(f.Quotas) - i; left > 1 && len(lines) == room-1 {
			return append(lines, styleHead.Render(fmt.Sprintf("and %d windows more", left)))
		}
		q := &f.Quotas[i]
		share := 0.0
		if q.Remaining != nil && q.Limit != nil && *q.Limit > 0 {
			share = *q.Remaining / *q.Limit
		}
		lines = append(lines, fit(fmt.Sprintf("%-*s %-8s %s %-21s %s", name, fit(q.Quota, name), fit(q.Window, 8), bar(share, topBar),
			number(q.Remaining)+" of "+number(q.Limit), number(q.Denied)), width))
	}
	return lines
}

// topTable shows the campaigns, in so many lines.
func topTable(f *top.Frame, width, room int) []string {
	name := max(8, width-topColumnsWide)
	wide := width >= wideTop
	if wide {
		name = min(60, name-topBar-1)
	}
	head := fmt.Sprintf("%-*s"+topColumns, name, "campaign", "rate/s", "sent/s", "backlog", "eta", "requ/s", "retry/s", "dead/s")
	if wide {
		head += " sent of rate"
	}
	lines := []string{styleHead.Render(head)}
	for i := range f.Campaigns {
		if left := len(f.Campaigns) - i + f.More; left > 1 && len(lines) >= room-1 {
			return append(lines, styleHead.Render(fmt.Sprintf("and %d campaigns more", left)))
		}
		lines = append(lines, topRow(&f.Campaigns[i], name, wide))
	}
	switch {
	case f.More > 0:
		lines = append(lines, styleHead.Render(fmt.Sprintf("and %d campaigns more", f.More)))
	case len(f.Campaigns) == 0:
		lines = append(lines, styleHead.Render("no campaigns"))
	}
	return lines
}

func topRow(r *top.Row, name int, wide bool) string {
	line := fmt.Sprintf("%-*s"+topColumns, name, fit(r.Campaign, name), number(r.SendRate), number(r.Sent), number(r.Backlog),
		toGo(r.ETA), number(r.Requeued), number(r.Retried), number(r.Dead))
	if wide && r.SendRate != nil && r.Sent != nil && *r.SendRate > 0 {
		line += " " + bar(*r.Sent / *r.SendRate, topBar)
	}
	return line
}

// bar shows a share of 1 in so many characters.
func bar(share float64, width int) string {
	done := min(max(int(share*float64(width)+0.5), 0), width)
	return strings.Repeat("█", done) + strings.Repeat("░", width-done)
}

// fit cuts a text that is too long, and replaces what would move the cursor: it comes from another process.
func fit(s string, width int) string {
	s = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
	if runes := []rune(s); len(runes) > width {
		return string(runes[:max(width-1, 0)]) + "…"
	}
	return s
}

// number is a figure of at most seven characters; "-" when it is not known.
func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 1e15:
		return "a lot"
	case *v >= 999_950_000:
		return fmt.Sprintf("%.1fG", *v/1e9)
	case *v >= 999_950:
		return fmt.Sprintf("%.1fM", *v/1e6)
	case *v >= 999.5:
		return fmt.Sprintf("%d,%03d", int(*v+0.5)/1000, int(*v+0.5)%1000)
	case *v >= 99.95, *v == float64(int(*v)):
		return fmt.Sprintf("%.0f", *v)
	case *v >= 0.095:
		return fmt.Sprintf("%.1f", *v)
	}
	return fmt.Sprintf("%.2g", *v)
}

func milliseconds(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	ms := *seconds * 1000
	return number(&ms) + " ms"
}

// toGo is a time in its two largest units.
func toGo(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	switch s := int64(*seconds + 0.5); {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s < 1000*86400:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	}
	return "years"
}
