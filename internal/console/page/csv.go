package page

import (
	"cmp"
	"context"
	"encoding/csv"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// maxLines bounds the lines of a file, but for campaigns, which are all in memory; csvPage is how many rows are read at a time.
const (
	maxLines = 10_000
	csvPage  = 1000
)

// sheet is what a file for spreadsheets has. Its lines are written as they are read: many clients may read slowly.
type sheet struct {
	head  []string
	lines func(ctx context.Context, s *Site, query url.Values, write writer) error
}

// writer writes a line. Where the client is gone, it ends the request.
type writer func(cells ...string)

// sheets are the files, each of what the page of the same name shows of its whole selection.
var sheets = map[string]sheet{
	"campaigns": {[]string{
		"id", "state", "status", "rate", "allowed_per_second", "sent_per_second", "backlog", "delivered", "rejected", "dead", "expired",
		"cancelled", "capped", "sink", "quotas", "why",
	}, campaignLines},
	"usage":        {[]string{"start", "end", "units", "window", "left"}, usageLines},
	"changes":      {[]string{"number", "when", "who", "actor", "application", "what", "campaign", "quota", "destination", "column", "old", "new", "reason", "request_id"}, changeLines},
	"dead":         {[]string{"place", "at", "campaign", "job_id", "reason", "detail", "attempts", "origin", "bytes", "replayed", "answer"}, letterLines},
	"destinations": {[]string{"id", "state", "sink", "url", "max_in_flight", "disabled_at", "disabled_reason", "failing_since", "delivered", "failed", "waiting", "revision", "updated_at"}, destinationLines},
}

// sheet serves a file. An error before the first line is answered; a later one ends the connection.
func (s *Site) sheet(name string, of sheet) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, begun := csv.NewWriter(w), false
		begin := func() {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.csv"`)
			_ = out.Write(of.head) // the next one has its error
			begun = true
		}
		err := of.lines(r.Context(), s, r.URL.Query(), func(cells ...string) {
			if !begun {
				begin()
			}
			for i := range cells {
				cells[i] = harmless(cells[i])
			}
			if out.Write(cells) != nil {
				panic(http.ErrAbortHandler)
			}
		})
		switch {
		case err != nil && begun:
			panic(http.ErrAbortHandler)
		case err != nil:
			http.Error(w, view.Line(err), api.StatusOf(err))
			return
		case !begun:
			begin()
		}
		out.Flush()
	}
}

func campaignLines(ctx context.Context, s *Site, query url.Values, write writer) error {
	by := view.SelectionOf(query)
	by.After = ""
	state := s.watcher.Fresh(ctx)
	list, _, _ := state.Select(by, math.MaxInt)
	if missing := state.Missing(by.CampaignFilter); len(list) == 0 && missing != nil {
		return missing
	}
	for _, c := range list {
		p, _ := known[catalog.CampaignProgress](c.Progress)
		held, _ := known[view.Held](c.Held)
		write(
			c.ID, c.State, c.Status, c.Rate, strconv.FormatFloat(c.Allowed, 'f', -1, 64), rateOrNothing(c.Sent), countOrNothing(c.Backlog),
			count(p.Delivered), count(p.Rejected), count(p.Dead), count(p.Expired), count(p.Cancelled), count(p.Capped), c.Sink, strings.Join(c.Quotas, " "), held.Why,
		)
	}
	return nil
}

// usageLines has a line for each step and window: windows differ from quota to quota.
func usageLines(ctx context.Context, s *Site, query url.Values, write writer) error {
	state := s.watcher.Fresh(ctx)
	q := state.Quota(query.Get("id"))
	if q == nil {
		missing := catalog.Fault(catalog.ErrNotFound, "There is no quota %s.", notation.Shorten(query.Get("id")))
		return cmp.Or(state.Missing(view.CampaignFilter{}), missing)
	}
	span := oneOf(query.Get("last"), spans)
	last, _ := notation.ParseSpan(span) // one of those
	now := time.Now()
	usage, err := s.watcher.Sources().Usage(ctx, q.ID, now.Add(-last), now.Truncate(time.Minute), stepsOf[span])
	if err != nil {
		return err
	}
	for _, step := range usage {
		for _, left := range step.Remaining {
			write(notation.Instant(&step.Start), notation.Instant(&step.End), count(step.Units), count(left.Limit)+"/"+left.Span, countOrNothing(left.Units))
		}
	}
	return nil
}

// changeLines has a line for each field of a change.
func changeLines(ctx context.Context, s *Site, query url.Values, write writer) error {
	of := changesOf(query)
	of.Before, of.Limit = 0, csvPage
	for lines := 0; ; {
		list, err := s.watcher.Sources().Changes(ctx, of)
		if err != nil {
			return err
		}
		for i := range list {
			c := &list[i]
			fields := c.Fields
			if len(fields) == 0 {
				fields = []catalog.Field{{}}
			}
			for _, f := range fields {
				if lines++; lines > maxLines {
					return nil
				}
				write(
					count(c.Number), notation.Instant(&c.When), c.Who, c.Actor, c.Application, c.What, c.Campaign, c.Quota, c.Destination,
					f.Name, f.Old, f.New, c.Reason, c.RequestID,
				)
			}
		}
		if len(list) < of.Limit {
			return nil
		}
		of.Before = list[len(list)-1].Number
	}
}

func letterLines(ctx context.Context, s *Site, query url.Values, write writer) error {
	filter, err := searchOf(query).filter()
	if err != nil {
		return err
	}
	filter.After, filter.Limit = "", maxLines
	letters, err := s.watcher.Sources().Letters(ctx, filter)
	if err != nil {
		return err
	}
	for i := range letters.List {
		d := &letters.List[i]
		if auth.Of(ctx).Role < auth.Operator {
			d.Answer = ""
		}
		write(
			d.Place, notation.Instant(&d.At), d.Campaign, d.JobID, d.Reason, d.Detail, strconv.Itoa(d.Attempts), d.Origin, strconv.Itoa(d.Bytes),
			strconv.FormatBool(d.Replayed), d.Answer,
		)
	}
	return nil
}

func destinationLines(ctx context.Context, s *Site, query url.Values, write writer) error {
	of := view.DestinationsQuery(query)
	of.After, of.Limit = "", csvPage
	for range maxLines / csvPage {
		list, next, err := s.watcher.Sources().Destinations(ctx, of)
		if err != nil {
			return err
		}
		for i := range list {
			d := &list[i]
			write(
				d.ID, d.State, d.Sink, d.URL, count(d.MaxInFlight), notation.Instant(d.DisabledAt), d.DisabledReason, notation.Instant(d.FailingSince),
				count(d.Progress.Delivered), count(d.Progress.Failed()), count(d.Progress.Waiting), count(d.Revision), notation.Instant(&d.UpdatedAt),
			)
		}
		if of.After = next; next == "" {
			break
		}
	}
	return nil
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
