package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/demo/count"
)

// Fact is one measured value and its bound.
type Fact struct {
	Name     string  `json:"name"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Want     string  `json:"want"` // "" if there is no bound
	OK       bool    `json:"ok"`
}

// Told returns a fact without a bound.
func Told(name string, measured float64, unit string) Fact {
	return Fact{Name: name, Measured: count.Round(measured, 3), Unit: unit, OK: true}
}

// AtMost returns a fact with an upper bound.
func AtMost(name string, measured, bound float64, unit string) Fact {
	f := Told(name, measured, unit)
	f.Want, f.OK = fmt.Sprintf("at most %g", count.Round(bound, 3)), measured <= bound
	return f
}

// AtLeast returns a fact with a lower bound.
func AtLeast(name string, measured, bound float64, unit string) Fact {
	f := Told(name, measured, unit)
	f.Want, f.OK = fmt.Sprintf("at least %g", count.Round(bound, 3)), measured >= bound
	return f
}

// FactTable writes facts as a Markdown table, nothing if there are none.
func FactTable(facts []Fact) string {
	if len(facts) == 0 {
		return ""
	}
	rows := [][]string{{"measured", "", "", "bound", "met"}}
	for _, f := range facts {
		rows = append(rows, []string{f.Name, fmt.Sprintf("%g", f.Measured), f.Unit, f.Want, showIf(f.Want != "", met(f.OK))})
	}
	return table(rows, 1)
}

// StreamTable writes streams as a Markdown table, and the bounds that were not met below it.
func StreamTable(streams []Stream) string {
	if len(streams) == 0 {
		return ""
	}
	rows := [][]string{{
		"rate/s", "daemons", "sink", "s", "jobs", "of rate", "max in 1 s", "above rate + 1", "bins within 5 %", "worst bin",
		"late p50", "late p99", "shares off", "CPU s/1M", "MiB", "Redis/job", "requeued", "lost", "twice", "met",
	}}
	var misses strings.Builder
	for i := range streams {
		s := &streams[i]
		if len(s.Misses) > 0 {
			fmt.Fprintf(&misses, "- %g/s on %d daemons: %s\n", s.Rate, s.Daemons, strings.Join(s.Misses, "; "))
		}
		fast := s.Rate >= evenRate                     // bins say something only if each has many jobs
		shared := s.Daemons >= 2 && s.Jobs >= fairJobs // and shares only of enough jobs
		rows = append(rows, []string{
			fmt.Sprintf("%g", s.Rate), fmt.Sprint(s.Daemons), s.Sink, fmt.Sprintf("%g", s.Seconds), fmt.Sprint(s.Jobs),
			percent(s.AchievedOverTarget, 2), fmt.Sprint(s.MaxRolling1s), fmt.Sprintf("%+.1f", s.AboveRate),
			showIf(fast, percent(s.BinsWithin5, 1)), showIf(fast, percent(s.BinsWorst, 1)),
			fmt.Sprintf("%.2f ms", s.LatenessP50MS), fmt.Sprintf("%.2f ms", s.LatenessP99MS),
			showIf(shared, percent(Unfairness(s.Shares), 1)), fmt.Sprintf("%.0f", s.CPUSecondsPerMillion), fmt.Sprintf("%.0f", s.RSSMiB),
			fmt.Sprintf("%.3f", s.RedisCommandsPerJob), fmt.Sprintf("%.3f", s.RequeuesPerJob), fmt.Sprint(s.Lost),
			fmt.Sprint(s.Duplicates), met(len(s.Misses) == 0),
		})
	}
	text := table(rows, 0)
	if misses.Len() > 0 {
		text += "\nNot met:\n\n" + misses.String()
	}
	return text
}

func showIf(telling bool, figure string) string {
	if !telling {
		return ""
	}
	return figure
}

func met(ok bool) string {
	if !ok {
		return "**no**"
	}
	return "yes"
}

func percent(share float64, digits int) string { return fmt.Sprintf("%.*f %%", digits, 100*share) }

// table writes a Markdown table whose first row is its head. Columns from right on are aligned to the right.
func table(rows [][]string, right int) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for c, cell := range row {
			widths[c] = max(widths[c], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		for c, cell := range cells {
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell))
			if c < right {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
	}
	line(rows[0])
	for c, w := range widths {
		if c < right {
			b.WriteString("|:" + strings.Repeat("-", w+1))
		} else {
			b.WriteString("|" + strings.Repeat("-", w+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
	return b.String()
}
