package catalog

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// endpointTimes are the instants of a destination.
	endpointTimes = `CASE WHEN isfinite(d.disabled_at) THEN d.disabled_at END, CASE WHEN isfinite(d.failing_since) THEN d.failing_since END`

	selectDestinations = `
SELECT d.id, d.revision, coalesce(d.sink, ''), d.url, d.headers::text, d.secrets, d.max_in_flight, coalesce(d.disabled_reason, ''), d.renewed,
       ` + endpointTimes + `
FROM pacer.destinations d WHERE d.revision > $1`
)

// endpointEntry is a row of destinations.
type endpointEntry struct {
	row *delivery.Destination
	reading
}

func (e *endpointEntry) revision() int64 { return e.row.Revision }

// readEndpoint converts the current row. Headers that are not texts, which the triggers refuse, are left out.
func readEndpoint(rows pgx.Rows, words *interner) (*endpointEntry, error) {
	var e delivery.Destination
	var headers string
	var disabled, failing *time.Time
	err := rows.Scan(&e.ID, &e.Revision, &e.Sink, &e.URL, &headers, &e.Secrets, &e.MaxInFlight, &e.DisabledReason, &e.Renewed, &disabled, &failing)
	if err != nil {
		return nil, err
	}
	e.Sink = words.text([]byte(e.Sink))
	e.DisabledAt, e.FailingSince = delivery.StampOf(orZero(disabled)), delivery.StampOf(orZero(failing))
	e.Headers = endpointHeaders(headers, words)
	if len(e.Secrets) == 0 {
		e.Secrets = nil
	}
	return &endpointEntry{row: &e}, nil
}

func endpointHeaders(object string, words *interner) (list []delivery.DestinationHeader) {
	var texts map[string]any
	if json.Unmarshal([]byte(object), &texts) != nil {
		return nil
	}
	for _, name := range slices.SortedFunc(maps.Keys(texts), strings.Compare) {
		if value, ok := texts[name].(string); ok {
			list = append(list, delivery.DestinationHeader{Name: words.text([]byte(name)), Value: words.text([]byte(value))})
		}
	}
	return list
}
