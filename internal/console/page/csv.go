package page

import (
	"encoding/csv"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/console/view"
)

// table serves the selected campaigns, on all pages, as CSV.
func (s *Site) table(w http.ResponseWriter, r *http.Request) {
	by := view.SelectionOf(r.URL.Query())
	by.After = ""
	list, _, _ := s.looker.Look(r.Context()).Select(by, math.MaxInt)
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="campaigns.csv"`)
	out := csv.NewWriter(w)
	_ = out.Write([]string{
		"id", "state", "status", "rate", "allowed_per_second", "sent_per_second", "backlog", "delivered", "rejected", "dead", "expired",
		"cancelled", "sink", "quotas", "why",
	}) // errors are those of the connection
	for _, c := range list {
		p, why := view.Progress{}, ""
		if c.Progress != nil {
			p = *c.Progress
		}
		if c.Held != nil {
			why = c.Held.Why
		}
		row := []string{
			c.ID, c.State, c.Status, c.Rate, strconv.FormatFloat(c.Allowed, 'f', -1, 64), rateOrNothing(c.Sent), countOrNothing(c.Backlog),
			count(p.Delivered), count(p.Rejected), count(p.Dead), count(p.Expired), count(p.Cancelled), c.Sink, strings.Join(c.Quotas, " "), why,
		}
		for i := range row {
			row[i] = harmless(row[i])
		}
		if out.Write(row) != nil {
			return
		}
	}
	out.Flush()
}

// harmless keeps a cell from being taken for a formula by spreadsheets.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

func countOrNothing(n *int64) string {
	if n == nil {
		return ""
	}
	return count(*n)
}

func rateOrNothing(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}
