package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Change is one row of campaign_changes.
type Change struct {
	Change      int64           `json:"change"` // its number; later ones are higher
	When        time.Time       `json:"when"`
	Who         string          `json:"who"`             // the role of the database
	Application string          `json:"application"`     // as it called itself
	Actor       string          `json:"actor,omitempty"` // for whom the application did it, as it said
	Reason      string          `json:"reason,omitempty"`
	RequestID   string          `json:"request_id,omitempty"`
	Relation    string          `json:"relation"`
	Operation   string          `json:"operation"`
	Campaign    string          `json:"campaign,omitempty"`
	Quota       string          `json:"quota,omitempty"`
	Destination string          `json:"destination,omitempty"`
	Old         json.RawMessage `json:"old,omitempty"` // what of it was changed, or all that was there
	New         json.RawMessage `json:"new,omitempty"`
}

// ChangesOf selects changes; the zero value selects all.
type ChangesOf struct {
	Campaign, Quota, Destination string // the first of these that is not empty
	Who                          string // an actor, with or without its address, or a role of the database; "": all
	Before                       int64  // only changes with a lower number; 0: all
	Limit                        int    // at most 1,000
}

// maxChanges bounds one answer of Changes.
const maxChanges = 1000

// Changes returns changes of campaigns and quotas, the newest first.
func (a *Admin) Changes(ctx context.Context, of ChangesOf) ([]Change, error) {
	if of.Limit < 1 || of.Limit > maxChanges {
		return nil, invalid("limit must lie between 1 and %d, not %d", maxChanges, of.Limit)
	}
	return ask(ctx, a, func(ctx context.Context, pool *pgxpool.Pool) ([]Change, error) {
		where, args := "", []any{of.Limit, of.Before}
		for _, by := range []struct{ column, id string }{{"campaign_id", of.Campaign}, {"quota_id", of.Quota}, {"destination_id", of.Destination}} {
			if by.id != "" {
				args = append(args, by.id)
				where = " AND " + by.column + " = $3"
				break
			}
		}
		if of.Who != "" { // most changes are by few, and rows are kept for a time only: no index for it
			args = append(args, of.Who)
			where += fmt.Sprintf(" AND $%d IN (who, actor, regexp_replace(actor, '@[^@]*$', ''))", len(args))
		}
		rows, err := pool.Query(ctx, `SELECT change, "when", who, application, relation, operation, coalesce(campaign_id, ''),
       coalesce(quota_id, ''), coalesce(destination_id, ''), coalesce(actor, ''), coalesce(reason, ''), coalesce(request_id, ''), old, new FROM pacer.campaign_changes
WHERE ($2::bigint = 0 OR change < $2::bigint)`+where+` ORDER BY change DESC LIMIT $1`, args...)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Change, err error) {
			var before, after *string
			err = row.Scan(&c.Change, &c.When, &c.Who, &c.Application, &c.Relation, &c.Operation, &c.Campaign, &c.Quota, &c.Destination,
				&c.Actor, &c.Reason, &c.RequestID, &before, &after)
			if err == nil {
				c.Old, c.New = differences(before, after)
			}
			return c, err
		})
	})
}

// differences leaves out of two objects what both have alike. What cannot be read is returned as it is.
func differences(before, after *string) (old, changed json.RawMessage) {
	raw := func(s *string) json.RawMessage {
		if s == nil {
			return nil
		}
		return json.RawMessage(*s)
	}
	var a, b map[string]json.RawMessage
	if before == nil || after == nil || json.Unmarshal([]byte(*before), &a) != nil || json.Unmarshal([]byte(*after), &b) != nil {
		return raw(before), raw(after)
	}
	for key, value := range a {
		if other, ok := b[key]; ok && string(other) == string(value) {
			delete(a, key)
			delete(b, key)
		}
	}
	old, _ = json.Marshal(a) // maps of valid JSON
	changed, _ = json.Marshal(b)
	return old, changed
}
