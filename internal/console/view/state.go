package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

// State is the installation at one moment. It is immutable.
type State struct {
	At              time.Time      `json:"at"`
	Version         string         `json:"version"`
	Revision        int64          `json:"revision" doc:"of the catalog"`
	Faults          []string       `json:"faults" doc:"what could not be asked, and why"`
	Degraded        string         `json:"degraded,omitempty" doc:"which of Redis, Kafka and PostgreSQL have not answered this process, and for how long"`
	ReadOnly        string         `json:"read_only,omitempty" doc:"why nothing can be changed by this process"`
	Counts          map[string]int `json:"campaigns" doc:"campaigns by state"`
	Sent            *float64       `json:"sent,omitempty" doc:"units per second that all daemons send"`
	Allowed         float64        `json:"allowed" doc:"units per second that campaigns with a backlog may send"`
	Backlog         *int64         `json:"backlog,omitempty" doc:"jobs that are not settled"`
	LateCapacity    *int64         `json:"late_capacity,omitempty" doc:"jobs that are late by lack of capacity"`
	LateDestination *int64         `json:"late_destination,omitempty" doc:"jobs that are late by their destination"`
	DaemonsRunning  int            `json:"daemons_running"`
	DaemonsReady    int            `json:"daemons_ready"`

	Campaigns []*Campaign       `json:"-"` // in the order of their ids
	Quotas    []*Quota          `json:"-"` // likewise
	Sinks     []*Sink           `json:"-"`
	Daemons   []progress.Daemon `json:"-"`

	known  *evidence                     // what it was computed from
	orders map[string]func() []*Campaign // the campaigns in each order but that of their ids
	late   sync.Map                      // by how much campaigns miss their ends: a plan is of all campaigns, and made once for all who look
}

// Campaign returns the campaign with this id; nil if there is none.
func (s *State) Campaign(id string) *Campaign {
	i, ok := slices.BinarySearchFunc(s.Campaigns, id, func(c *Campaign, id string) int { return strings.Compare(c.ID, id) })
	if !ok {
		return nil
	}
	return s.Campaigns[i]
}

// Quota returns the quota with this id; nil if there is none.
func (s *State) Quota(id string) *Quota {
	i, ok := slices.BinarySearchFunc(s.Quotas, id, func(q *Quota, id string) int { return strings.Compare(q.ID, id) })
	if !ok {
		return nil
	}
	return s.Quotas[i]
}

// States of campaigns that nothing holds.
const (
	Sending = "sending"
	Idle    = "idle"
	// Ramping is how one that is sending is shown and found whose ramp has not reached its rate.
	Ramping = "ramping"
)

// notLoaded is why no campaign is known.
const notLoaded = "the catalog is not loaded: is PostgreSQL reachable, and migrated?"

// evidence is what a State is computed from.
type evidence struct {
	now       time.Time
	snapshot  *delivery.Snapshot
	fleet     *Fleet // nil: not known
	earlier   *Fleet // of some seconds ago; nil: not known
	gates     []delivery.Gate
	windows   map[string][]delivery.WindowState // nil: not known
	uncounted string                            // why windows are not known; "" if they are
	ungated   string                            // likewise gates
	storeDown bool
	rows      map[string]*catalog.CampaignRow // nil: not known
	readOnly  string
	faults    []string
}

func (l *Watcher) state(e *evidence) *State {
	s := &State{
		At: e.now, Version: l.sources.Version, ReadOnly: e.readOnly, Faults: e.faults, Counts: map[string]int{}, Campaigns: []*Campaign{}, Quotas: []*Quota{},
		known: e,
	}
	if s.Faults == nil {
		s.Faults = []string{}
	}
	if l.sources.Degraded != nil {
		s.Degraded = l.sources.Degraded()
	}
	if e.fleet != nil {
		s.LateCapacity, s.LateDestination = &e.fleet.LateCapacity, &e.fleet.LateDestination
		s.Daemons, s.DaemonsRunning = e.fleet.Daemons, len(e.fleet.Daemons)
		for i := range s.Daemons {
			if s.Daemons[i].Ready {
				s.DaemonsReady++
			}
		}
	}
	s.Sinks = l.sinks(e)
	if e.snapshot == nil {
		s.Faults = append(s.Faults, notLoaded)
		return s
	}
	s.Revision = e.snapshot.Revision
	for _, id := range slices.Sorted(maps.Keys(e.snapshot.Campaigns)) {
		s.add(l.campaign(e, e.snapshot.Campaigns[id]))
	}
	s.addQuotas(e)
	s.orders = s.sorted()
	return s
}

// add adds a campaign and its part of the sums.
func (s *State) add(c *Campaign) {
	s.Campaigns = append(s.Campaigns, c)
	s.Counts[c.State]++
	if c.Backlog != nil {
		s.Backlog = plus(s.Backlog, *c.Backlog)
	}
	if c.ready && c.Held == nil {
		s.Allowed += c.Allowed
	}
	if c.Sent != nil {
		s.Sent = plus(s.Sent, *c.Sent)
	}
	for _, sink := range s.Sinks {
		if sink.Name != c.Sink {
			continue
		}
		sink.Campaigns++
		if c.Held != nil && hold.Cause(c.Held.Cause).Destination() {
			sink.Held++
		}
	}
}

func plus[T int64 | float64](sum *T, n T) *T {
	if sum != nil {
		n += *sum
	}
	return &n
}

func (l *Watcher) campaign(e *evidence, c *delivery.Campaign) *Campaign {
	v := &Campaign{
		ID: c.ID, Status: string(c.Status), Quotas: []string{}, Lanes: []int{}, PriorityWeight: c.PriorityWeight,
		MaxInFlight: c.MaxInFlight, Burst: c.Burst, Overflow: string(c.Overflow), ExpectedTotal: c.ExpectedTotal, Revision: c.Revision - c.Repaced,
		FinishBy:    instant(c.FinishBy),
		PausedUntil: instant(c.PausedUntil), StartsAt: instant(c.StartsAt), EndsAt: instant(c.EndsAt), NextChange: until(c.NextChange(e.now)),
	}
	if c.Ramp != nil {
		v.RampSince = instant(c.Ramp.Since)
	}
	if c.TTL > 0 {
		v.JobTTL = notation.FormatSpan(c.TTL)
	}
	for _, q := range slices.Concat(c.Quotas, c.Keyed) {
		v.Quotas = append(v.Quotas, q.ID)
		if waits := e.fleet.keys(q.ID); waits != nil {
			v.Keys = append(v.Keys, *waits)
		}
	}
	v.SinkSet = c.Sink
	v.Allowed, v.Rate = Allowed(c, e.now), fmt.Sprintf("%g", c.Rate.PerSecond())
	if row := e.rows[c.ID]; row != nil {
		// Rows are some seconds old. A form must be of one revision, so the older one counts; a change at it is refused if the row has
		// changed since.
		v.Revision = min(v.Revision, row.Revision)
		v.Rate, v.TimeZone, v.UpdatedAt, v.Progress = row.Rate, row.TimeZone, instant(orZero(row.UpdatedAt)), row.Progress
		v.ActiveHours, v.Ramp = row.ActiveHours, row.Ramp
	}
	if e.fleet != nil {
		v.Sent = e.sent(c.ID)
	}
	if l.judge(v, e, c); v.Progress != nil {
		v.Progress = v.foreseen(v.Progress)
	}
	return v
}

func (l *Watcher) judge(v *Campaign, e *evidence, c *delivery.Campaign) {
	known := hold.Evidence{Now: e.now, Campaign: c, Gates: e.gates, Windows: e.windows, Store: e.storeDown, Ledger: l.sources.Ledger, Stores: e.snapshot.Stores}
	known.Sink, known.SinkFault = l.sources.Sink(c.Sink)
	v.Sink = known.Sink
	if e.fleet != nil {
		known.Board = e.fleet.Of(c)
		known.Failure = e.fleet.Failure(known.Sink, known.Board.Destination)
		backlog := known.Board.Backlog.Total()
		v.ready = backlog > known.Board.Early
		v.Backlog, v.States, v.Lanes = &backlog, &known.Board.Backlog, append([]int{}, known.Board.Lanes...)
		v.weight = max(1, known.Board.Weight)
	}
	a := hold.Of(known)
	v.lastFailure = hold.LastFailure(known.Failure)
	switch {
	case a.Cause != hold.None:
		v.State = string(a.Cause)
		v.Held = &Held{Cause: v.State, Since: instant(a.Since), Until: instant(a.Until)}
		v.Held.Why, v.Held.Remedy = a.Words()
	case v.Sent != nil && *v.Sent > 0, v.ready:
		_, _, step := c.RateAt(e.now)
		v.State, v.Ramping = Sending, !step.IsZero()
	default:
		v.State = Idle
	}
}

// sent returns the units per second that all daemons have sent of the campaign lately; nil if that is not known.
func (e *evidence) sent(campaign string) *float64 {
	if e.fleet == nil || e.earlier == nil || e.fleet.Counter == "" || e.earlier.Counter != e.fleet.Counter || !e.fleet.At.After(e.earlier.At) {
		return nil
	}
	now, counts := e.fleet.Sent(campaign)
	was, known := e.earlier.Sent(campaign)
	if counts && !known { // it has begun to send meanwhile
		return nil
	}
	perSecond := max(0, float64(now-was)/e.fleet.At.Sub(e.earlier.At).Seconds())
	return &perSecond
}

func (s *State) addQuotas(e *evidence) {
	byQuota := map[string][]string{}
	count, backlog := map[string]int{}, map[string]int64{}
	for _, c := range s.Campaigns {
		for _, q := range c.Quotas {
			backlog[q] += orZero(c.Backlog)
			if count[q]++; count[q] <= catalog.MaxListed {
				byQuota[q] = append(byQuota[q], c.ID)
			}
		}
	}
	waiting := func(k *delivery.KeyWaits) { // turns were also given to jobs that have expired since, or were cancelled
		k.Waiting = min(k.Waiting, backlog[k.Quota])
	}
	for _, c := range s.Campaigns {
		for i := range c.Keys {
			waiting(&c.Keys[i])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.snapshot.Quotas)) {
		q := e.snapshot.Quotas[id]
		v := &Quota{
			ID: q.ID, Mode: cmp.Or(q.Mode, delivery.ModeStrict), Spend: cmp.Or(q.Spend, delivery.SpendGreedy),
			OnStoreFailure: cmp.Or(q.OnStoreFailure, delivery.PolicyClosed), Rollout: 100 - q.Exempt, Unit: cmp.Or(q.Unit, "units"), Shard: q.Shard,
			Revision: q.Revision, Windows: []Window{}, Campaigns: append([]string{}, byQuota[id]...), CampaignCount: count[id],
		}
		if v.Keying = catalog.KeyingOf(q); q.Per != "" {
			if v.Keys = e.fleet.keys(q.ID); v.Keys != nil {
				waiting(v.Keys)
			}
		}
		for i, w := range q.Windows {
			one := Window{
				Span: notation.FormatSpan(w.Span), Seconds: w.Span.Seconds(), Limit: w.Limit, Algorithm: cmp.Or(w.Algorithm, delivery.AlgorithmSliding),
				Anchor: w.Anchor,
			}
			for _, state := range e.windows[id] {
				if state.Window == i {
					one.Remaining, one.FreeAt, one.FullAt = new(state.Remaining), micros(state.FreeAt), micros(state.ResetAt)
				}
			}
			v.Windows = append(v.Windows, one)
		}
		switch {
		case len(q.Windows) == 0:
		case q.Per != "":
			v.Unknown = "it is kept by " + q.Per + ": pacer key show prints what remains for one value"
		case v.Mode == delivery.ModeEventual:
			v.Unknown = "in mode eventual the daemons count by themselves"
		default:
			v.Unknown = e.uncounted
		}
		s.Quotas = append(s.Quotas, v)
	}
}

// instant is t in UTC and whole seconds, nil for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

// until is instant of a time that is to come.
func until(t time.Time) *time.Time { return instant(notation.Until(t)) }

func micros(us int64) *time.Time {
	if us == 0 {
		return nil
	}
	return until(time.UnixMicro(us))
}
