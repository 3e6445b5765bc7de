package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// speedRow is a row of a table of speeds: a figure, the yardstick that it is measured beside, and what is to be reached.
type speedRow struct {
	name, what string
	unit       string
	yardstick  string  // what the figure is divided by; "" if the figure itself has to reach the bound
	bound      float64 // 0: the figure is only shown
	atMost     bool    // the bound is the largest that is allowed, not the least
}

// speedSample is what one round gave.
type speedSample struct {
	Figure    float64 `json:"figure"`
	Yardstick float64 `json:"yardstick,omitempty"`
	Note      string  `json:"note,omitempty"`
}

// speedResult is a row with its figures: medians of the rounds.
type speedResult struct {
	Row       string        `json:"row"`
	What      string        `json:"what"`
	Unit      string        `json:"unit"`
	Figure    float64       `json:"figure"`
	Beside    string        `json:"beside,omitempty"` // what the yardstick is
	Yardstick float64       `json:"yardstick,omitempty"`
	Ratio     float64       `json:"ratio,omitempty"`
	ToReach   string        `json:"to_reach"`
	Reached   bool          `json:"reached"`
	Rounds    []speedSample `json:"rounds"`
}

// speedTable collects the samples of rows. It is safe for concurrent use.
type speedTable struct {
	rows []speedRow

	mu      sync.Mutex // guards samples
	samples map[string][]speedSample
}

func newSpeedTable(rows []speedRow) *speedTable {
	return &speedTable{rows: rows, samples: map[string][]speedSample{}}
}

// add notes what a round gave for a row. A figure that does not reach its bound is only shown, since a busy machine can
// be the reason.
func (s *speedTable) add(t *testing.T, row string, sample speedSample) {
	t.Helper()
	if !slices.ContainsFunc(s.rows, func(r speedRow) bool { return r.name == row }) {
		t.Fatalf("there is no row %q", row)
	}
	t.Logf("FIGURE  %s: %s, yardstick %s; %s", row, short(sample.Figure), short(sample.Yardstick), sample.Note)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples[row] = append(s.samples[row], sample)
}

// results are the rows that were measured.
func (s *speedTable) results() (results []speedResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range s.rows {
		if samples := s.samples[row.name]; len(samples) > 0 {
			results = append(results, row.result(samples))
		}
	}
	return results
}

func (r *speedRow) result(samples []speedSample) speedResult {
	var figures, yardsticks, ratios []float64
	for _, s := range samples {
		figures = append(figures, s.Figure)
		if r.yardstick != "" && s.Yardstick > 0 {
			yardsticks, ratios = append(yardsticks, s.Yardstick), append(ratios, s.Figure/s.Yardstick)
		}
	}
	result := speedResult{
		Row: r.name, What: r.what, Unit: r.unit, Figure: middle(figures), Beside: r.yardstick, Yardstick: middle(yardsticks),
		Ratio: middle(ratios), ToReach: r.toReach(), Rounds: samples,
	}
	judged := result.Figure
	if r.yardstick != "" {
		judged = result.Ratio
	}
	result.Reached = r.bound == 0 || judged >= r.bound
	if r.atMost {
		result.Reached = judged <= r.bound
	}
	return result
}

func (r *speedRow) toReach() string {
	bound := short(r.bound)
	switch {
	case r.bound == 0:
		return ""
	case r.yardstick != "" && r.atMost:
		bound += " x"
	case r.yardstick != "":
		bound = percentage(r.bound)
	default:
		bound = strings.TrimSpace(bound + " " + r.unit)
	}
	if r.atMost {
		return "<= " + bound
	}
	return ">= " + bound
}

// String is the table in Markdown.
func (s *speedTable) String() string { return s.table(func(*speedResult) bool { return true }) }

// compared is the table of those figures that have something to be compared with; others are in plots.
func (s *speedTable) compared() string {
	return s.table(func(r *speedResult) bool { return r.Beside+r.ToReach != "" })
}

func (s *speedTable) table(of func(*speedResult) bool) string {
	var b strings.Builder
	b.WriteString("| row | what | figure | yardstick | ratio | to reach | reached |\n| --- | --- | ---: | ---: | ---: | --- | --- |\n")
	for _, r := range s.results() {
		if !of(&r) {
			continue
		}
		yardstick, ratio, reached := "", "", "yes"
		if r.Beside != "" {
			yardstick, ratio = fmt.Sprintf("%s %s, %s", short(r.Yardstick), r.Unit, r.Beside), percentage(r.Ratio)
			if strings.HasSuffix(r.ToReach, " x") {
				ratio = short(r.Ratio) + " x"
			}
		}
		switch {
		case !r.Reached:
			reached = "**no**"
		case r.ToReach == "":
			reached = ""
		}
		figure := strings.TrimSpace(short(r.Figure) + " " + r.Unit)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.Row, r.What, figure, yardstick, ratio, r.ToReach, reached)
	}
	return b.String()
}

// publish prints the table. It writes the figures as JSON to the file SPEED_REPORT. It writes the table into the file SPEED_TABLE,
// between the marks of that name, with the named plots below.
func (s *speedTable) publish(t *testing.T, mark string, plots ...string) {
	t.Helper()
	results := s.results()
	if len(results) == 0 {
		return
	}
	fmt.Printf("\n%s\n", s)
	if file := os.Getenv("SPEED_REPORT"); file != "" {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err := encoder.Encode(results)
		if err == nil {
			err = os.WriteFile(file, text.Bytes(), 0o644)
		}
		if err != nil {
			t.Errorf("write the report: %v", err)
		}
	}
	file := os.Getenv("SPEED_TABLE")
	if file == "" || t.Failed() {
		return
	}
	text, err := os.ReadFile(file)
	if err == nil {
		table := s.compared()
		for _, name := range plots {
			table += fmt.Sprintf("\n![%s](measured/%s.svg)\n", name, name)
		}
		text, err = between(text, mark, fmt.Sprintf("\n%s, %d processors, medians of rounds: %d.\n\n%s",
			time.Now().Format("2 January 2006"), runtime.NumCPU(), len(results[0].Rounds), table))
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Errorf("write the table: %v", err)
	}
}

// between replaces what is between the comments that begin and end the part of this name.
func between(text []byte, name, part string) ([]byte, error) {
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- end of "+name+" -->")
	head, rest, ok := bytes.Cut(text, begin)
	_, tail, also := bytes.Cut(rest, end)
	if !ok || !also {
		return nil, fmt.Errorf("there is no part %q", name)
	}
	return slices.Concat(head, begin, []byte(part), []byte("\n"), end, tail), nil
}

// middle is the median, 0 of none.
func middle(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// short shows three or more digits of a number.
func short(f float64) string {
	switch {
	case f < 10:
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
	case f < 1000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
	}
	return fmt.Sprintf("%.0f", f)
}

func percentage(share float64) string { return short(100*share) + " %" }

func TestSpeedTable(t *testing.T) {
	table := newSpeedTable([]speedRow{
		{name: "rate", what: "sent", unit: "/s", yardstick: "the loop", bound: 0.88},
		{name: "cpu", what: "time of a job", unit: "µs", yardstick: "the loop", bound: 1.15, atMost: true},
		{name: "memory", what: "resident", unit: "MiB", bound: 200, atMost: true},
		{name: "heap", what: "heap", unit: "MiB"},
		{name: "absent", what: "not measured", unit: "/s"},
	})
	for _, round := range []float64{3, 1, 2} {
		table.add(t, "rate", speedSample{Figure: 10000 * round, Yardstick: 10000 * round * (0.85 + round/100)})
		table.add(t, "cpu", speedSample{Figure: 24 + round, Yardstick: 20})
		table.add(t, "memory", speedSample{Figure: 198.9 + round, Note: "a note"})
		table.add(t, "heap", speedSample{Figure: 1.5})
	}
	want := `| row | what | figure | yardstick | ratio | to reach | reached |
| --- | --- | ---: | ---: | ---: | --- | --- |
| rate | sent | 20000 /s | 17400 /s, the loop | 114.9 % | >= 88 % | yes |
| cpu | time of a job | 26 µs | 20 µs, the loop | 1.3 x | <= 1.15 x | **no** |
| memory | resident | 200.9 MiB |  |  | <= 200 MiB | **no** |
| heap | heap | 1.5 MiB |  |  |  |  |
`
	if got := table.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := table.results()[2]; r.Reached || len(r.Rounds) != 3 || r.Rounds[1].Note != "a note" || r.Ratio != 0 {
		t.Errorf("%+v", r)
	}
}
