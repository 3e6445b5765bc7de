package command

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
)

// eachDead yields the letters that match, the newest first, page by page; 0 is no limit.
func (c *cli) eachDead(ctx context.Context, filter deadletter.Filter, limit int, yield func(view.Letter) error) error {
	query := url.Values{"since": {time.Unix(0, 0).UTC().Format(time.RFC3339)}} // without any the last day is meant
	for name, value := range map[string]string{"campaign": filter.Campaign, "reason": string(filter.Reason), "job_id": filter.JobID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if !filter.Since.IsZero() {
		query.Set("since", filter.Since.UTC().Format(time.RFC3339Nano))
	}
	if !filter.Until.IsZero() {
		query.Set("until", filter.Until.UTC().Format(time.RFC3339Nano))
	}
	for n := 0; ; {
		page := pageSize
		if limit > 0 {
			page = min(page, limit-n)
		}
		query.Set("limit", strconv.Itoa(page))
		var found view.Letters
		if err := c.get(ctx, "/dead-letters", query, &found); err != nil {
			return err
		}
		for i := range found.List {
			if err := yield(found.List[i]); err != nil {
				return err
			}
		}
		if n += len(found.List); found.Next == "" || limit > 0 && n >= limit {
			return nil
		}
		query.Set("after", found.Next)
	}
}

// oneDead finds a letter by its place, or else the newest one of a job.
func (c *cli) oneDead(ctx context.Context, what string) (*deadWhole, error) {
	whole := &deadWhole{}
	if _, ok := view.ParsePlace(what); !ok {
		var places []string
		err := c.eachDead(ctx, deadletter.Filter{JobID: what}, 1+maxField, func(d view.Letter) error {
			places = append(places, d.Place)
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case len(places) == 0:
			return nil, fmt.Errorf("there is none of job %s; pacer dead list shows what there is", strconv.Quote(what))
		}
		what, whole.Others = places[0], places[1:]
	}
	return whole, c.get(ctx, "/dead-letters/"+what, nil, &whole.WholeLetter)
}
