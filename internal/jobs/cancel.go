package jobs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/record"
)

// MaxCancelled bounds the ids of one cancellation. findWithin bounds the search for them, and maxRecords the records that are cancelled: many
// may have one id.
const (
	MaxCancelled = 1000
	findWithin   = 10 * time.Second
	maxRecords   = 10 * MaxCancelled
)

// Cancellation says which jobs to cancel.
type Cancellation struct {
	IDs []string
	// Campaign is theirs: they are cancelled without a search for their records, also if they are published later, unless an id is the place of
	// a record. It does not find jobs whose ids are unique only with the source of their event.
	Campaign string
}

// Cancelled is what has become of the jobs of a Cancellation.
type Cancelled struct {
	Jobs   []CancelledJob `json:"jobs"`
	Unread []string       `json:"unread" doc:"what was not read, or not in time, and why"`
}

// CancelledJob is one job of a Cancellation. Jobs of several campaigns may have one id.
type CancelledJob struct {
	ID       string `json:"id"`
	Campaign string `json:"campaign,omitempty"`
	State    string `json:"state" enum:"cancelled,in_flight,delivered,not_found" doc:"cancelled: it is not sent, and settles as cancelled at its turn; in_flight: it is being sent, or was a moment ago; not_found: no record of it waits, as far as all were read, so it is settled, or was never published"`
}

// NotFound is the state of a job of which no record waits, as far as all were read.
const NotFound = "not_found"

// unsearched is said of jobs whose records were not looked for.
const unsearched = "the records of jobs whose campaign was given: a CloudEvent with a ce_source is cancelled only without the campaign"

// ErrNoLedger means that there is no dedupe ledger.
var ErrNoLedger = errors.New("single jobs are cancelled in the dedupe ledger, which is off: set dedupe.ttl and restart the daemons, or cancel the campaign")

// Cancel cancels jobs that wait. It calls record with what cancels them and returns their ids by campaign; record repeats the error.
func (t Topics) Cancel(ctx context.Context, c Cancellation, record func(context.Context, func(context.Context) (map[string][]string, error)) error) (Cancelled, error) {
	if t.Marks == nil {
		return Cancelled{}, ErrNoLedger
	}
	c.IDs = slices.Compact(slices.Sorted(slices.Values(c.IDs)))
	out := Cancelled{Jobs: []CancelledJob{}, Unread: []string{}}
	list, missing := t.named(ctx, c, &out)
	err := record(ctx, func(ctx context.Context) (map[string][]string, error) {
		ctx, cancel := context.WithTimeout(ctx, markWithin)
		defer cancel()
		marks, err := t.Marks.Cancel(ctx, list)
		done := map[string][]string{}
		out.Jobs = out.Jobs[:0]
		for i, mark := range marks {
			j := list[i]
			out.Jobs = append(out.Jobs, CancelledJob{j.ID, j.Campaign, string(mark)})
			if mark == dedupe.Cancelled {
				done[j.Campaign] = append(done[j.Campaign], j.ID)
			}
		}
		return done, err
	})
	for _, id := range missing {
		out.Jobs = append(out.Jobs, CancelledJob{ID: id, State: NotFound})
	}
	return out, err
}

// named returns the jobs of a cancellation, and the ids of which no record waits.
func (t Topics) named(ctx context.Context, c Cancellation, out *Cancelled) (list []dedupe.Job, missing []string) {
	ids, found, seen := map[string]bool{}, map[string]bool{}, map[dedupe.Job]bool{}
	for _, id := range c.IDs {
		if at, _ := record.ParseOrigin(id); c.Campaign == "" || slices.Contains(t.Ingress, at.Topic) { // a place is unique in its topic only
			ids[id] = true
		} else {
			found[id], list = true, append(list, dedupe.Job{Campaign: c.Campaign, ID: id})
		}
	}
	if len(list) > 0 {
		defer func() { out.Unread = append(out.Unread, unsearched) }()
	}
	if len(ids) == 0 {
		return list, nil
	}
	reading, end := context.WithTimeout(ctx, findWithin)
	defer end()
	out.Unread = unread(t.waiting(reading, ids, func(w Waiting) {
		if !seen[w.job] && len(list) < maxRecords && (c.Campaign == "" || c.Campaign == w.Campaign) {
			seen[w.job], found[w.job.ID], list = true, true, append(list, w.job)
		}
	}))
	slices.SortFunc(list, func(a, b dedupe.Job) int { return cmp.Or(cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.ID, b.ID)) })
	return list, slices.DeleteFunc(slices.Clone(c.IDs), func(id string) bool { return found[id] })
}
