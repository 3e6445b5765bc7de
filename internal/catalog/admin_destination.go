package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// DestinationRow is where jobs are sent that name it, as the API shows it. As it is read, the URL has its query, and the headers their values.
type DestinationRow struct {
	ID             string            `json:"id"`
	State          string            `json:"state" enum:"disabled,failing,enabled" doc:"jobs of a disabled one wait; to a failing one nothing has been delivered of late"`
	Sink           string            `json:"sink" doc:"the sink that sends to it; empty: any with destinations"`
	URL            string            `json:"url" doc:"without its query, which may hold a secret"`
	Query          bool              `json:"query" doc:"it has a query, which is not shown"`
	Headers        map[string]string `json:"headers" doc:"of its requests; the values are for admins, and secrets are references, file:NAME or env:NAME"`
	Secrets        []string          `json:"secrets" doc:"references to what signs its requests, the newest first"`
	MaxInFlight    int64             `json:"max_in_flight" doc:"of one daemon; 0 for as many as the sink has"`
	DisabledAt     *time.Time        `json:"disabled_at,omitempty"`
	DisabledReason string            `json:"disabled_reason,omitempty"`
	FailingSince   *time.Time        `json:"failing_since,omitempty"`
	Fault          string            `json:"fault,omitempty" doc:"why nothing is sent to it, as far as the process that answers knows; of one destination, not in lists"`
	Revision       int64             `json:"revision"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`

	Progress DestinationProgress `json:"progress"`
}

// DestinationProgress is what became of a destination's jobs, as last saved by the daemons: counts for people, not exact.
type DestinationProgress struct {
	Outcomes

	Waiting   int64      `json:"waiting" doc:"jobs that wait in timers, or for the destination in memory; not those in ingress and lanes, which wait for their campaigns"`
	UpdatedAt *time.Time `json:"updated_at,omitempty" doc:"when a daemon stored this; absent before the first time"`
	// Answers are the last ones.
	Answers []delivery.Answer `json:"answers,omitempty" doc:"its last ten, the newest first; of one destination, not in lists"`
}

// Failed is how many jobs were not delivered and never will be.
func (p *DestinationProgress) Failed() int64 { return p.Dead + p.Expired + p.Rejected }

// Seen returns the revision of the destination when it was read.
func (r *DestinationRow) Seen() int64 { return r.Revision }

// Destination converts the row to the form used by daemons.
func (r *DestinationRow) Destination() *delivery.Destination {
	e := &delivery.Destination{
		ID: r.ID, Sink: r.Sink, URL: r.URL, Secrets: r.Secrets, MaxInFlight: int(r.MaxInFlight), DisabledReason: r.DisabledReason,
		DisabledAt: delivery.StampOf(orZero(r.DisabledAt)), FailingSince: delivery.StampOf(orZero(r.FailingSince)), Revision: r.Revision,
	}
	for name, value := range r.Headers {
		e.Headers = append(e.Headers, delivery.DestinationHeader{Name: name, Value: value})
	}
	return e
}

// DestinationChange is a change of a destination; what is nil stays, or gets its default in a new one.
type DestinationChange struct {
	URL         *string            `json:"url,omitempty" minLength:"1" maxLength:"2048" example:"https://hooks.example.com/orders" doc:"the whole address, with its query"`
	Sink        *string            `json:"sink,omitempty" maxLength:"256" doc:"empty: any with destinations"`
	Headers     *map[string]string `json:"headers,omitempty" example:"{\"x-tenant\": \"blue\"}" doc:"all of them; a value may be a reference, file:NAME or env:DESTINATION_NAME"`
	Secrets     *[]string          `json:"secrets,omitempty" maxItems:"4" nullable:"false" example:"[\"file:shop-7\"]" doc:"references to what signs its requests, all of them, the newest first"`
	MaxInFlight *int64             `json:"max_in_flight,omitempty" minimum:"0" maximum:"2147483647" doc:"of one daemon; 0 for as many as the sink has"`
}

// assignment returns what the change sets, or in one line what is wrong with it.
func (c *DestinationChange) assignment(id string) (*assignment, error) {
	if !delivery.ValidID(id) {
		return nil, invalid("destination id %q %s", notation.Shorten(id), delivery.IDRule)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	a := assign(id)
	setIf(a, "url", c.URL, asIs)
	setIf(a, "sink", c.Sink, nullable)
	setIf(a, "headers", c.Headers, asIs)
	setIf(a, "secrets", c.Secrets, func(list []string) []string { return append([]string{}, list...) })
	setIf(a, "max_in_flight", c.MaxInFlight, asIs)
	return a, nil
}

// maxURL is the longest address of a destination.
const maxURL = 2048

// check returns what the schema would refuse of the address, in words for the part that is wrong. The address is not repeated: it may hold a secret.
func (c *DestinationChange) check() error {
	if c.URL == nil {
		return nil
	}
	scheme, rest, _ := strings.Cut(*c.URL, "://")
	host := rest[:cmp.Or(strings.IndexAny(rest, "/?#")+1, len(rest)+1)-1]
	const example = ", such as https://hooks.example.com/orders"
	switch {
	case scheme != "https" && scheme != "http":
		return invalid("url: must begin with https:// or http://" + example)
	case strings.Contains(host, "@"):
		return invalid("url: must have no user and no password before the host; put credentials into headers, as references to secrets")
	case host == "":
		return invalid("url: names no host; give one" + example)
	case strings.Contains(rest, "#"):
		return invalid("url: must have no fragment; leave out # and what is behind it")
	case strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalid("url: must be printable ASCII without spaces; write other characters as %%20 and the like")
	case len(*c.URL) > maxURL:
		return invalid("url: %d characters are more than %d; give a shorter one", len(*c.URL), maxURL)
	}
	return nil
}

// DestinationsAfter returns at most limit destinations with ids behind the given one, in the order of their ids.
func (a *Admin) DestinationsAfter(ctx context.Context, id string, limit int) ([]DestinationRow, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) ([]DestinationRow, error) {
		return queryDestinations(ctx, pool, "NULL::jsonb", `WHERE d.id COLLATE "C" > $1 ORDER BY d.id COLLATE "C" LIMIT $2`, id, limit)
	})
}

// DestinationsOf selects destinations, as the API's list takes it; empty fields select all.
type DestinationsOf struct {
	Text  string `query:"q" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"part of the id"`
	State string `query:"state" enum:"disabled,failing,enabled"`
	Sink  string `query:"sink" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"name of the sink that it names"`
	After string `query:"after" maxLength:"300" pattern:"^(|(disabled|failing|enabled):[!-~]+)$" patternDescription:"next of the page before" doc:"next of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// inState is the place of a destination in the order of states: disabled ones first, then failing ones.
const inState = `CASE WHEN d.disabled_at IS NOT NULL THEN 0 WHEN d.failing_since IS NOT NULL THEN 1 ELSE 2 END`

// FindDestinations returns a page of the destinations selected: those that are disabled first, then those that fail, each in the order of
// their ids; and where the next page begins, "" if there is none. There may be a million of them.
func (a *Admin) FindDestinations(ctx context.Context, of DestinationsOf) (list []DestinationRow, next string, err error) {
	at := func(state string) int {
		return slices.IndexFunc(delivery.DestinationStates[:], func(s delivery.DestinationState) bool { return s.String() == state })
	}
	state, after, _ := strings.Cut(of.After, ":") // in whose order the list is
	if of.After != "" && after == "" {
		return nil, "", invalid("after: it must be what next of the page before says")
	}
	list, err = read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) ([]DestinationRow, error) {
		return queryDestinations(ctx, pool, "NULL::jsonb", `WHERE ($1 = '' OR position($1 IN d.id) > 0) AND ($2 = '' OR d.sink = $2) AND ($3 < 0 OR `+inState+` = $3)
  AND ($4 = '' OR (`+inState+`, d.id COLLATE "C") > ($5, $4 COLLATE "C"))
ORDER BY `+inState+`, d.id COLLATE "C" LIMIT $6`, of.Text, of.Sink, at(of.State), after, at(state), of.Limit+1)
	})
	if len(list) > of.Limit {
		list = list[:of.Limit]
		next = list[of.Limit-1].State + ":" + list[of.Limit-1].ID
	}
	return list, next, err
}

// GetDestination returns one destination.
func (a *Admin) GetDestination(ctx context.Context, id string) (DestinationRow, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) (DestinationRow, error) {
		return oneDestination(ctx, pool, id)
	})
}

// WriteDestination creates a destination, or changes what change sets and keeps the rest.
func (a *Admin) WriteDestination(ctx context.Context, id string, change *DestinationChange, on Precondition) (DestinationRow, error) {
	set, err := change.assignment(id)
	if err == nil && on.New && change.URL == nil {
		err = invalid("destination %s needs a url, such as https://hooks.example.com/orders", notation.Shorten(id))
	}
	if err != nil {
		return DestinationRow{}, err
	}
	return destinations.change(ctx, a, id, func(ctx context.Context, tx pgx.Tx) error { return destinations.write(ctx, tx, id, set, on) })
}

// DisableDestination has the jobs of a destination wait, for the reason of the actor, or be sent again. One that is disabled keeps its time.
func (a *Admin) DisableDestination(ctx context.Context, id string, disable bool) (DestinationRow, error) {
	return destinations.change(ctx, a, id, func(ctx context.Context, tx pgx.Tx) error {
		if err := destinations.lock(ctx, tx, id, nil); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE pacer.destinations SET disabled_at = CASE WHEN $2 THEN coalesce(disabled_at, clock_timestamp()) END,
    disabled_reason = CASE WHEN $2 THEN $3 ELSE disabled_reason END WHERE id = $1`, id, disable, ActorOf(ctx).Reason)
		return err
	})
}

// DeleteDestination deletes a destination, and returns what it was. Jobs that name it wait for unknown_grace, and then become dead
// letters. revision, if set, is that of the destination before; else the error is ErrStale.
func (a *Admin) DeleteDestination(ctx context.Context, id string, revision *int64) (DestinationRow, error) {
	return destinations.remove(ctx, a, id, revision, func(DestinationRow) error { return nil })
}

func unknownDestination(id string) error {
	return inLine(fmt.Sprintf("destination %s does not exist; create it with: pacer destination create %s --url https://…", id, id), ErrNotFound)
}

func oneDestination(ctx context.Context, q querier, id string) (DestinationRow, error) {
	rows, err := queryDestinations(ctx, q, "g.answers", `WHERE d.id = $1`, id)
	return only(rows, err, unknownDestination(id))
}

func queryDestinations(ctx context.Context, q querier, answers, clause string, args ...any) ([]DestinationRow, error) {
	rows, err := q.Query(ctx, `
SELECT d.id, coalesce(d.sink, ''), d.url, d.headers, d.secrets, d.max_in_flight, coalesce(d.disabled_reason, ''), `+endpointTimes+`,
       d.revision, d.created_at, d.updated_at,
       coalesce(g.delivered, 0), coalesce(g.rejected, 0), greatest(0, g.dead), greatest(0, g.expired), coalesce(g.cancelled, 0), coalesce(g.capped, 0),
       coalesce(g.waiting, 0), g.updated_at, `+answers+`
FROM pacer.destinations d LEFT JOIN pacer.destination_progress g ON g.destination_id = d.id `+clause, args...)
	if err != nil {
		return nil, fmt.Errorf("read destinations: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r DestinationRow, err error) {
		p := &r.Progress
		err = row.Scan(&r.ID, &r.Sink, &r.URL, &r.Headers, &r.Secrets, &r.MaxInFlight, &r.DisabledReason,
			&r.DisabledAt, &r.FailingSince, &r.Revision, &r.CreatedAt, &r.UpdatedAt,
			&p.Delivered, &p.Rejected, &p.Dead, &p.Expired, &p.Cancelled, &p.Capped, &p.Waiting, &p.UpdatedAt, &p.Answers)
		r.State, r.Query = r.Destination().State().String(), strings.Contains(r.URL, "?")
		return r, err
	})
}
