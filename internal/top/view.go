package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// size is the size of a view, in characters.
type size struct{ width, height int }

// wideWidth is the least width of a frame with bars of the campaigns' rates.
const wideWidth = 100

// columns of the table after the campaign's name.
const (
	columns      = " %9s %9s %8s %7s %6s %5s"
	columnsWidth = 50
	barWidth     = 16
)

const (
	defaultWidth = 80
	pageHeight   = 10_000 // more than there can be
)

// Page formats a frame for output that is not a terminal.
func Page(f *Frame) string {
	return picture(f, size{width: defaultWidth, height: pageHeight}, "")
}

// picture formats a frame within the size: the daemons, the quotas, the campaigns, and a line at the foot. In a small
// terminal, quotas get a quarter of the height.
func picture(f *Frame, size size, foot string) string {
	lines := append(headLines(f, size.width), "")
	if quotas := quotaLines(f, size.width, max(2, size.height/4)); len(quotas) > 0 {
		lines = append(append(lines, quotas...), "")
	}
	lines = append(lines, campaignLines(f, size.width, size.height-len(lines)-1)...)
	if foot != "" {
		lines = append(lines, foot)
	}
	return strings.Join(lines[:min(len(lines), size.height)], "\n")
}

// headLines describes the state of all daemons.
func headLines(f *Frame, width int) []string {
	state := StyleGood.Render("ready")
	if !f.Ready {
		state = StylePaused.Render("degraded: " + fit(f.Reason, max(10, width-len(f.Address)-40)))
	}
	if f.Address != "" {
		state = fit(f.Address, width) + "  " + state
	}
	lines := []string{
		StyleTitle.Render("pacer top") + "  " + state + "  " + f.At.Local().Format(time.TimeOnly),
		fit(fmt.Sprintf("sends %s/s of %s/s   late by capacity %s, by destination %s", number(f.Total.Sent), number(f.Total.SendRate),
			number(count(f.Fleet.LateCapacity)), number(count(f.Fleet.LateDestination))), width),
		fit(fmt.Sprintf("forfeits %s/s   lateness p99 %s   in the last minute", number(f.Fleet.Forfeited), milliseconds(f.Fleet.LatenessP99)), width),
		fit(fmt.Sprintf("daemons ready %d of %d   in memory %s   in flight: %s", f.Fleet.Ready, f.Fleet.Running, number(count(&f.Fleet.Queued)), inFlight(f.Sinks)), width),
	}
	if f.Fleet.Stalled > 0 {
		lines = append(lines, styleBad.Render(fit(fmt.Sprintf("%d partitions make no progress though they could; see the log", f.Fleet.Stalled), width)))
	}
	return lines
}

// inFlight lists the sinks with what is in flight to each.
func inFlight(sinks []SinkRow) string {
	list := make([]string, 0, len(sinks))
	for _, s := range sinks {
		list = append(list, s.Sink+" "+number(count(&s.InFlight)))
	}
	return strings.Join(list, ", ")
}

func count(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

// quotaLines formats the windows with the least left, within a number of lines.
func quotaLines(f *Frame, width, room int) []string {
	if len(f.Quotas) == 0 {
		return nil
	}
	name := min(30, max(16, width-60))
	lines := []string{StyleHead.Render(fit(fmt.Sprintf("%-*s %-8s left", name, "quota", "window"), width))}
	for i := range f.Quotas {
		if left := len(f.Quotas) - i; left > 1 && len(lines) == room-1 {
			return append(lines, StyleHead.Render(fmt.Sprintf("and %d windows more", left)))
		}
		q := &f.Quotas[i]
		share := 0.0
		if q.Remaining != nil && q.Limit > 0 {
			share = q.left()
		}
		lines = append(lines, fit(fmt.Sprintf("%-*s %-8s %s %s", name, fit(q.Quota, name), fit(q.Window, 8), Bar(share, barWidth),
			number(count(q.Remaining))+" of "+number(count(&q.Limit))), width))
	}
	return lines
}

// campaignLines formats the campaigns, within a number of lines.
func campaignLines(f *Frame, width, room int) []string {
	name := max(8, width-columnsWidth)
	wide := width >= wideWidth
	if wide {
		name = min(60, name-barWidth-1)
	}
	head := fmt.Sprintf("%-*s"+columns, name, "campaign", "rate/s", "sent/s", "backlog", "eta", "dead/s", "lanes")
	if wide {
		head += " sent of rate"
	}
	lines := []string{StyleHead.Render(head)}
	for i := range f.Campaigns {
		if left := len(f.Campaigns) - i + f.More; left > 1 && len(lines) >= room-1 {
			return append(lines, StyleHead.Render(fmt.Sprintf("and %d campaigns more", left)))
		}
		lines = append(lines, campaignLine(&f.Campaigns[i], name, wide))
	}
	switch {
	case f.More > 0:
		lines = append(lines, StyleHead.Render(fmt.Sprintf("and %d campaigns more", f.More)))
	case len(f.Campaigns) == 0:
		lines = append(lines, StyleHead.Render("no campaigns"))
	}
	return lines
}

func campaignLine(r *Row, name int, wide bool) string {
	line := fmt.Sprintf("%-*s"+columns, name, fit(r.Campaign, name), number(r.SendRate), number(r.Sent), number(count(r.Backlog)),
		toGo(r.ETA), number(r.Dead), strconv.Itoa(r.Lanes))
	if wide && r.SendRate != nil && r.Sent != nil && *r.SendRate > 0 {
		line += " " + Bar(*r.Sent / *r.SendRate, barWidth)
	}
	return line
}

// fit truncates a text and replaces control characters: the text comes from another process.
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

// number formats a number in at most seven characters; "-" if it is unknown.
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

// toGo formats a duration in its two largest units.
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
