package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pacer/pacer/internal/delivery"
)

// undoable says of a table by which columns a row is known, and which of the others people set. A table without such columns has rows that
// are there or not.
type undoable struct{ key, columns []string }

// undoables are the tables whose changes can be undone.
var undoables = map[string]undoable{
	"campaigns": {[]string{"id"}, []string{
		"send_rate", "send_per", "burst", "status", "paused_until", "sink", "priority_weight", "max_in_flight", "starts_at", "ends_at", "active_hours",
		"time_zone", "ramp", "ramp_since", "overflow", "job_ttl", "expected_total",
	}},
	"quotas":          {[]string{"id"}, []string{"on_store_failure", "mode", "spend", "rollout", "unit"}},
	"destinations":    {[]string{"id"}, []string{"sink", "url", "headers", "secrets", "max_in_flight", "disabled_at", "disabled_reason"}},
	"quota_windows":   {[]string{"quota_id", "span"}, []string{"max_units", "algorithm", "anchor"}},
	"campaign_quotas": {[]string{"campaign_id", "quota_id"}, nil},
}

// whole reports whether rows of the table are parts of something, which come and go.
func whole(relation string) bool { return relation == "quota_windows" || relation == "campaign_quotas" }

// canUndo reports whether a change of a table can be undone by Revert.
func canUndo(relation, operation string) bool {
	_, known := undoables[relation]
	return known && (operation == "update" || whole(relation) && (operation == "insert" || operation == "delete"))
}

// Revert undoes a change with another one: the columns that it has changed get the values that they had, and a window of a quota, or the
// link of a campaign to one, that it has added or removed is removed or added. It returns what was undone. The error is ErrStale if any of
// that has changed since; other columns may have. A campaign that is cancelled or completed stays so.
func (a *Admin) Revert(ctx context.Context, change int64) (Change, error) {
	return alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (c Change, err error) {
		var before, after *string
		err = tx.QueryRow(ctx, `SELECT change, relation, operation, coalesce(campaign_id, ''), coalesce(quota_id, ''), coalesce(destination_id, ''), old, new
FROM pacer.campaign_changes WHERE change = $1`, change).Scan(&c.Change, &c.Relation, &c.Operation, &c.Campaign, &c.Quota, &c.Destination, &before, &after)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return c, inLine(fmt.Sprintf("there is no change %d; the oldest ones are removed", change), ErrNotFound)
		case err != nil:
			return c, err
		case !canUndo(c.Relation, c.Operation):
			return c, invalid("change %d cannot be undone: only changes of settings, windows and links can", change)
		}
		of := undoables[c.Relation]
		switch c.Operation {
		case "insert":
			err = takeOut(ctx, tx, c.Relation, of.key, *after)
		case "delete":
			err = putBack(ctx, tx, c.Relation, *before)
		default:
			err = setBack(ctx, tx, c.Relation, of, *before, *after)
		}
		if err != nil {
			return c, err
		}
		return c, number(ctx, tx)
	})
}

// errChangedSince is that what a change has made is not what there is.
func errChangedSince(what string) error {
	return inLine(what+" was changed since, so the change cannot be undone; look at it again", ErrStale)
}

// only is a condition that holds for the row of t that has the key of a row in JSON, $1.
func only(relation string, key []string) string {
	conditions := make([]string, len(key))
	for i, column := range key {
		conditions[i] = fmt.Sprintf("t.%s = (jsonb_populate_record(NULL::pacer.%s, $1::jsonb)).%s", column, relation, column)
	}
	return strings.Join(conditions, " AND ")
}

// setBack gives the columns of a row that differ the values that they had.
func setBack(ctx context.Context, tx pgx.Tx, relation string, of undoable, before, after string) error {
	old, _ := differences(&before, &after)
	var changed map[string]json.RawMessage
	if err := json.Unmarshal(old, &changed); err != nil {
		return fmt.Errorf("read the change: %w", err)
	}
	columns := slices.Sorted(maps.Keys(changed))
	for _, column := range columns {
		if !slices.Contains(of.columns, column) {
			return invalid("the change cannot be undone: %s is not set by people", column)
		}
	}
	if len(columns) == 0 {
		return invalid("the change cannot be undone: it has changed no setting")
	}
	if slices.Contains(columns, "status") {
		if err := stays(after); err != nil {
			return err
		}
	}
	where := only(relation, of.key)
	// Locked first: what is compared is then what is changed.
	tag, err := tx.Exec(ctx, fmt.Sprintf(`SELECT FROM pacer.%s t WHERE %s FOR UPDATE`, relation, where), after)
	if err == nil && tag.RowsAffected() == 0 {
		err = inLine("what was changed is no row of "+relation+" any more", ErrStale)
	}
	if err != nil {
		return err
	}
	var same bool
	err = tx.QueryRow(ctx, fmt.Sprintf(`SELECT (SELECT bool_and((to_jsonb(t) -> k) IS NOT DISTINCT FROM ($1::jsonb -> k)) FROM unnest($2::text[]) AS k)
FROM pacer.%s t WHERE %s`, relation, where), after, columns).Scan(&same)
	if err != nil {
		return err
	}
	if !same {
		return errChangedSince("it")
	}
	list := strings.Join(columns, ", ")
	_, err = tx.Exec(ctx, fmt.Sprintf(`UPDATE pacer.%s t SET (%s) = (SELECT %s FROM jsonb_populate_record(NULL::pacer.%s, $2::jsonb)) WHERE %s`,
		relation, list, list, relation, where), after, before)
	return err
}

// stays refuses to take a campaign up again that was cancelled or completed.
func stays(after string) error {
	var row struct{ Status delivery.Status }
	if json.Unmarshal([]byte(after), &row) == nil && (row.Status == delivery.StatusCancelled || row.Status == delivery.StatusCompleted) {
		return inLine("a campaign that is "+string(row.Status)+" stays so; pacer campaign resume takes it up again", ErrOver)
	}
	return nil
}

// takeOut removes a row that a change has added, if it is still the same.
func takeOut(ctx context.Context, tx pgx.Tx, relation string, key []string, after string) error {
	tag, err := tx.Exec(ctx, fmt.Sprintf(`DELETE FROM pacer.%s t WHERE %s AND to_jsonb(t) = $1::jsonb`, relation, only(relation, key)), after)
	if err == nil && tag.RowsAffected() == 0 {
		err = errChangedSince("what it has added")
	}
	return err
}

// putBack adds a row that a change has removed.
func putBack(ctx context.Context, tx pgx.Tx, relation, before string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO pacer.%s SELECT * FROM jsonb_populate_record(NULL::pacer.%s, $1::jsonb)`, relation, relation), before)
	if server, ok := errors.AsType[*pgconn.PgError](err); ok && (server.Code == "23505" || server.Code == "23503") {
		return errChangedSince("what it has removed")
	}
	return err
}
