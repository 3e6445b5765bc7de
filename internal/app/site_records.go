package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// records implements view.Records over the database.
type records struct{ admin *catalog.Admin }

func (r records) Campaigns(ctx context.Context) (map[string]view.Record, error) {
	rows, err := r.admin.ListCampaigns(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]view.Record, len(rows))
	for i := range rows {
		row := &rows[i]
		p := &row.Progress
		record := view.Record{Revision: row.Revision, Rate: row.Rate(), TimeZone: row.TimeZone, UpdatedAt: row.UpdatedAt, Progress: view.Progress{
			Delivered: p.Delivered, Rejected: p.Rejected, Dead: p.Dead, Expired: p.Expired, Cancelled: p.Cancelled,
			DoneAt: p.DoneAt, Percent: p.Percent,
		}}
		if row.ActiveHours != nil {
			record.ActiveHours = notation.FormatHours(row.ActiveHours)
		}
		if row.RampSince != nil {
			record.Ramp = notation.FormatRamp(row.Ramp)
		}
		all[row.ID] = record
	}
	return all, nil
}

func (r records) Usage(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]view.Usage, error) {
	steps, err := r.admin.UsageHistory(ctx, quota, from, to, step)
	if err != nil {
		return nil, err
	}
	list := make([]view.Usage, 0, len(steps))
	for _, s := range steps {
		u := view.Usage{Start: s.Start, End: s.End, Units: s.Units, Remaining: []view.Left{}}
		for _, w := range s.Remaining {
			u.Remaining = append(u.Remaining, view.Left{Span: w.Span, Limit: w.Limit, Units: w.Units})
		}
		list = append(list, u)
	}
	return list, nil
}

func (r records) Changes(ctx context.Context, of view.ChangesOf) ([]view.Change, error) {
	changes, err := r.admin.Changes(ctx, catalog.ChangesOf(of))
	if err != nil {
		return nil, err
	}
	list := make([]view.Change, 0, len(changes))
	for i := range changes {
		c := &changes[i]
		fields := fieldsOf(c.Old, c.New)
		if c.Relation == "destinations" && auth.Of(ctx).Role < auth.Admin {
			redact(fields)
		}
		list = append(list, view.Change{
			Number: c.Change, When: c.When.UTC(), Who: c.Who, Application: c.Application, Actor: c.Actor, Reason: c.Reason, RequestID: c.RequestID,
			What:     c.Relation + " " + c.Operation,
			Campaign: c.Campaign, Quota: c.Quota, Destination: c.Destination, Fields: fields,
		})
	}
	return list, nil
}

// redact takes out of the fields of a destination what may let others send to it: the query of its address, and the values of its headers.
func redact(fields []view.Field) {
	for i := range fields {
		f := &fields[i]
		for _, text := range []*string{&f.Old, &f.New} {
			switch {
			case *text == "":
			case f.Name == "url":
				*text = sinkhttp.Redacted(*text)
			case f.Name == "headers":
				var headers map[string]json.RawMessage
				_ = json.Unmarshal([]byte(*text), &headers) // the table holds nothing else; of anything else no name is shown
				*text = strings.Join(slices.Sorted(maps.Keys(headers)), ", ")
			}
		}
	}
}

// fieldsOf lists what two rows differ in.
func fieldsOf(before, after json.RawMessage) []view.Field {
	var a, b map[string]json.RawMessage
	_ = json.Unmarshal(before, &a) // of an insert there is none
	_ = json.Unmarshal(after, &b)  // of a delete there is none
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, known := a[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	fields := []view.Field{}
	for _, name := range names {
		field := view.Field{Name: name, Old: plain(a[name]), New: plain(b[name])}
		if field.Old != "" || field.New != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// plain is a value as people write it; "" for null and none.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return strings.TrimPrefix(string(raw), "null")
}

const (
	// maxLooked bounds the dead letters that one look reads, and maxLetters those that it shows.
	maxLooked  = 10_000
	maxLetters = 100
)

// letters looks for dead letters, the newest first.
func (s *Services) letters(ctx context.Context, f view.LetterFilter) (found view.Letters, err error) {
	before, err := deadletter.ParsePosition(f.After)
	if err != nil {
		return view.Letters{}, view.Fault(view.ErrInvalid, "after: %s", err)
	}
	since, limit := f.Since, cmp.Or(f.Limit, maxLetters)
	if f.Last > 0 {
		since = time.Now().Add(-f.Last)
	}
	matched, counts := 0, map[[2]string]*view.LetterCount{}
	options := deadletter.Options{
		Topics: s.deadTopics(),
		Filter: deadletter.Filter{
			Campaign: f.Campaign, Reason: delivery.Reason(f.Reason), JobID: f.JobID, Since: since, Until: f.Until,
		},
		Before: before, Mark: limit, Reached: func(p deadletter.Position) {
			if found.Next == "" { // where the page is full, or else where the look ends
				found.Next = p.String()
			}
		},
		Unmarked:   func(error) {}, // then none is shown as replayed
		MaxScanned: maxLooked, Scanned: &found.Looked,
	}
	if f.After != "" {
		options.Limit = limit // the counts were those of the first page
	}
	err = deadletter.Newest(ctx, options, func(d deadletter.Letter) error {
		key := [2]string{d.Campaign, string(d.Reason)}
		count := counts[key]
		if count == nil {
			count = &view.LetterCount{Campaign: d.Campaign, Reason: string(d.Reason)}
			counts[key] = count
		}
		count.Letters++
		matched++
		if d.Replayed {
			count.Replayed++
		}
		if len(found.List) < limit {
			found.List = append(found.List, Letter(&d))
		}
		return nil
	})
	if found.More = cutShort(ctx, found.Looked, err); err != nil && !found.More {
		return view.Letters{}, BrokersFault(err)
	}
	if !found.More && (matched < limit || matched == limit && f.After == "") {
		found.Next = "" // these were the last ones
	}
	found.More = found.More || f.After != "" && found.Next != ""
	if found.Counts = []view.LetterCount{}; found.List == nil {
		found.List = []view.Letter{}
	}
	for _, count := range counts {
		found.Counts = append(found.Counts, *count)
	}
	slices.SortFunc(found.Counts, func(a, b view.LetterCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Reason, b.Reason))
	})
	return found, nil
}

// cutShort reports whether a look for letters has ended before the last one, but with an answer: what was found until then is more
// than nothing.
func cutShort(ctx context.Context, looked int, err error) bool {
	return errors.Is(err, deadletter.ErrMore) || err != nil && looked > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded)
}
