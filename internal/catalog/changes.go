package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Change is a change of a campaign, a quota or a destination: a row of campaign_changes.
type Change struct {
	Number      int64     `json:"number"` // later ones have higher numbers
	When        time.Time `json:"when"`
	Who         string    `json:"who" doc:"role of the database"`
	Application string    `json:"application"`
	Actor       string    `json:"actor,omitempty" doc:"for whom the application did it, as it said"`
	Reason      string    `json:"reason,omitempty"`
	RequestID   string    `json:"request_id,omitempty"`
	What        string    `json:"what" doc:"table and operation"`
	Campaign    string    `json:"campaign,omitempty"`
	Quota       string    `json:"quota,omitempty"`
	Destination string    `json:"destination,omitempty"`
	Fields      []Field   `json:"fields"`

	// OldRate and NewRate are those of a campaign before and after, as people write them; "" where there was none.
	OldRate, NewRate string `json:"-"`
}

// Field is a column that was changed.
type Field struct {
	Name string `json:"name"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// ChangesOf selects changes, as the API's list takes it; the zero value selects all.
type ChangesOf struct {
	Campaign    string `query:"campaign" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces"`
	Quota       string `query:"quota" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"only without campaign"`
	Destination string `query:"destination" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"only without campaign and quota"`
	Who         string `query:"who" maxLength:"256" doc:"for whom it was done, with or without the address, such as alice; or the role of the database"`
	Before      int64  `query:"before" minimum:"0" doc:"only changes with a lower number: that of the last one of the page before"`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// maxChanges bounds one answer of Changes.
const maxChanges = 1000

// Changes returns changes of campaigns and quotas, the newest first.
func (a *Admin) Changes(ctx context.Context, of ChangesOf) ([]Change, error) {
	if of.Limit < 1 || of.Limit > maxChanges {
		return nil, invalid("limit must lie between 1 and %d, not %d", maxChanges, of.Limit)
	}
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
	return list(ctx, a.database, "", scanChange, `SELECT change, "when", who, application, relation || ' ' || operation, coalesce(campaign_id, ''),
       coalesce(quota_id, ''), coalesce(destination_id, ''), coalesce(actor, ''), coalesce(reason, ''), coalesce(request_id, ''), old, new,
       `+rateColumns("old")+`, `+rateColumns("new")+` FROM pacer.campaign_changes
WHERE ($2::bigint = 0 OR change < $2::bigint)`+where+` ORDER BY change DESC LIMIT $1`, args...)
}

// rateColumns are the units of the rate of a recorded row, and what they are of in microseconds.
func rateColumns(row string) string {
	return `trim_scale((` + row + `->>'send_rate')::numeric)::text, least(extract(epoch FROM (` + row + `->>'send_per')::interval) * 1000000, 9e15)::bigint`
}

func scanChange(row pgx.CollectableRow) (c Change, err error) {
	var before, after, rateBefore, rateAfter *string
	var perBefore, perAfter *int64
	err = row.Scan(&c.Number, &c.When, &c.Who, &c.Application, &c.What, &c.Campaign, &c.Quota, &c.Destination,
		&c.Actor, &c.Reason, &c.RequestID, &before, &after, &rateBefore, &perBefore, &rateAfter, &perAfter)
	c.Fields = fieldsOf(before, after)
	c.OldRate, c.NewRate = rateIn(rateBefore, perBefore), rateIn(rateAfter, perAfter)
	return c, err
}

// rateIn is the rate of a recorded row; "" if it has none.
func rateIn(units *string, per *int64) string {
	if units == nil || per == nil {
		return ""
	}
	return formatRate(*units, *per)
}

// fieldsOf lists in what two rows differ.
func fieldsOf(before, after *string) []Field {
	var a, b map[string]json.RawMessage
	_ = json.Unmarshal([]byte(orZero(before)), &a) // an insert has none
	_ = json.Unmarshal([]byte(orZero(after)), &b)  // a delete has none
	names := maps.Clone(a)
	if names == nil {
		names = b
	}
	maps.Copy(names, b)
	fields := []Field{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if field := (Field{name, plain(a[name]), plain(b[name])}); field.Old != field.New {
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
