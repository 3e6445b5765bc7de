package progress

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// part is what one daemon knows, or, as a summary, what all daemons know together. It identifies campaigns by their hashes.
// Parts are encoded by the names of their fields.
type part struct {
	Format         int
	Lanes          delivery.LanesBacklog // in a summary, of each lane the count that is valid
	Memory         map[uint64]memory
	Tallies        map[uint64]tally // of campaigns that were worked for lately
	Stuck          map[uint64]note  // what this daemon found out about campaigns
	Nodes          []Daemon         // the daemon itself; in a summary all that run
	Sinks          []SinkReport
	Keys           []delivery.KeyWaits
	AtDestinations map[string]int64 // in timers, or for their destinations in memory

	// Of summaries only.
	Daemons int              // that run
	Moving  map[uint64]int64 // jobs, by campaign, that are on their way from one partition to another
	Silent  []int            // lanes whose daemon runs no more
	Holds   map[uint64]note  // what holds campaigns
	Late    Lateness         // of all jobs
}

// memory is what daemons have of a campaign in memory, and in their partitions of ingress and timers.
type memory struct {
	Direct   int64 // jobs of ingress and timers, whether in memory or not; the others are in lanes
	Timed    int64 // of these, those in timers that are not in memory
	Jobs     int64 // all jobs in memory
	Units    int64 // weights of these
	InHand   int64 // further jobs, which its sink has been given and has not answered
	Retrying int64 // of Jobs and of those not in memory, the ones that were tried before or put off by their destination
	Early    int64 // of Jobs, those whose time has not come
	Turn     int64 // when the rate next allows a job, in microseconds since the Unix epoch; 0: soon, or not known
	Due      int64 // when the last job that is not in memory may be sent, likewise; 0: at once
}

// plus adds what another daemon has of the campaign.
func (m memory) plus(o memory) memory {
	turn := min(m.Turn, o.Turn)
	if turn == 0 {
		turn = max(m.Turn, o.Turn)
	}
	return memory{
		Direct: m.Direct + o.Direct, Timed: m.Timed + o.Timed, Jobs: m.Jobs + o.Jobs, Units: m.Units + o.Units,
		InHand: m.InHand + o.InHand, Retrying: m.Retrying + o.Retrying, Early: m.Early + o.Early, Turn: turn, Due: max(m.Due, o.Due),
	}
}

// tally is what a daemon has done for a campaign since it started; in a summary, what all have done since the leader counts.
type tally struct {
	Sent, Unsent int64 // units; see delivery.Tally
	Settled      int64 // jobs, for good
}

// maxWaiting bounds the destinations that a daemon, or a summary, tells of: those for which most jobs wait.
const maxWaiting = 10_000

// mostWaiting drops the other ones.
func mostWaiting(jobs map[string]int64) map[string]int64 {
	if len(jobs) > maxWaiting {
		ids := slices.SortedFunc(maps.Keys(jobs), func(a, b string) int { return cmp.Or(cmp.Compare(jobs[b], jobs[a]), cmp.Compare(a, b)) })
		for _, id := range ids[maxWaiting:] {
			delete(jobs, id)
		}
	}
	return jobs
}

// note is what a daemon says of a campaign.
type note struct {
	Cause       hold.Cause
	Since       int64  // microseconds since the Unix epoch
	Destination string // whose gate Cause is about; "": that of the sink
}

// format is the version of parts. Fields can be added without a new one.
const format = 1

var errForeign = errors.New("it is not of this version of pacer, or damaged")

// encode packs the part.
func (p *part) encode() []byte {
	var b bytes.Buffer
	p.Format = format
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		panic(fmt.Sprintf("encode progress: %v", err)) // numbers and texts can always be encoded
	}
	return b.Bytes()
}

// decodePart reads the output of encode.
func decodePart(b []byte) (*part, error) {
	p := &part{}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(p); err != nil || p.Format != format {
		return nil, errForeign
	}
	return p, nil
}

// activity is a tally as it was when it last changed.
type activity struct {
	tally
	at time.Time
}

// ownTallies returns what this daemon has done for campaigns, of those for which it did something within activeFor, or has begun to.
func (t *Tracker) ownTallies(now time.Time) map[uint64]tally {
	active, lately := make(map[uint64]activity, len(t.active)), map[uint64]tally{}
	for _, one := range t.opt.Work.Tallies() {
		if one.Campaign == "" {
			continue
		}
		campaign, is := delivery.CampaignHash(one.Campaign), tally{one.Sent, one.Unsent, one.Settled.Total()}
		last, known := t.active[campaign]
		if !known || last.tally != is {
			last = activity{is, now}
		}
		active[campaign] = last
		if now.Sub(last.at) < activeFor {
			lately[campaign] = is
		}
	}
	t.active = active
	return lately
}

// activeFor is how long after its last job a campaign's tally is included in the part. Longer pauses do no harm: the
// other daemons remember the last tally.
const activeFor = 30 * time.Second

// part returns the part of this daemon.
func (t *Tracker) part(ctx context.Context) (*part, error) {
	jobs, err := t.opt.Work.InMemory(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p := &part{Lanes: t.opt.Work.Backlog(), Memory: map[uint64]memory{}, Tallies: t.ownTallies(now), Stuck: map[uint64]note{}}
	queued, inFlight := int64(0), int64(0)
	add := func(campaign uint64, m memory) { p.Memory[campaign] = p.Memory[campaign].plus(m) }
	for _, m := range jobs {
		queued, inFlight = queued+m.Jobs, inFlight+m.InHand
		one := memory{Jobs: m.Jobs, Units: m.Units, InHand: m.InHand, Retrying: m.Retrying, Early: m.Early}
		if m.Turn.After(now.Add(turnSoon)) {
			one.Turn = m.Turn.UnixMicro()
		}
		if one != (memory{}) {
			add(delivery.CampaignHash(m.Campaign), one)
		}
	}
	for _, n := range p.Lanes.Ingress {
		add(n.Campaign, memory{Direct: n.Jobs, Retrying: n.Retrying, Due: n.Due})
	}
	for _, n := range p.Lanes.Timers {
		add(n.Campaign, memory{Direct: n.Jobs, Timed: n.Unread, Retrying: n.Retrying, Due: n.Due})
	}
	at, err := t.opt.Work.AtDestinations(ctx)
	if err != nil {
		return nil, err
	}
	for destination, n := range p.Lanes.Destinations {
		at[destination] += n
	}
	maps.DeleteFunc(at, func(id string, _ int64) bool { return t.snapshot.Destination(id) == nil })
	p.AtDestinations = mostWaiting(at)
	p.Lanes.Ingress, p.Lanes.Timers, p.Lanes.Destinations = nil, nil, nil
	if t.opt.Node != nil {
		node := t.opt.Node()
		node.Name, node.Started, node.Revision = t.opt.Daemon, t.recent.started, t.snapshot.Revision
		node.Lanes, node.Queued, node.InFlight = len(p.Lanes.Lanes), queued, inFlight
		readings := t.opt.Readings()
		p.Keys = readings.Keys
		node.Figures, p.Sinks = t.recent.report(now, readings)
		p.Nodes = []Daemon{node}
	}
	troubles, err := t.opt.Work.Troubles(ctx)
	for _, s := range troubles {
		n := note{Cause: hold.Failing, Destination: s.Destination}
		if s.Refused {
			n.Cause = hold.Refused
		} else if s.Destination != "" {
			n.Cause = hold.Gate
		}
		p.Stuck[delivery.CampaignHash(s.Campaign)] = n
	}
	return p, err
}
