package progress

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// part is what one daemon knows, or, as a summary, what all daemons know together. It identifies campaigns by their hashes.
// Parts are encoded by the names of their fields.
type part struct {
	Format int
	Lanes  delivery.LanesBacklog // in a summary, of each lane the count that is valid
	Memory []memory
	Sent   []count  // units, by campaign; of a daemon since it started
	Stuck  []note   // what this daemon found out about campaigns
	Nodes  []Daemon // the daemon itself; in a summary all that run
	Sinks  []SinkReport
	Keys   []delivery.KeyWaits

	// Of summaries only.
	Daemons int      // that run
	Silent  []int    // lanes whose daemon runs no more
	Holds   []note   // what holds campaigns
	Late    Lateness // of all jobs
}

// memory is what daemons have of a campaign in memory.
type memory struct {
	Campaign uint64
	Direct   int64 // jobs that are in no lane
	Jobs     int64 // all jobs
	Units    int64 // weights of these
	InHand   int64 // jobs that its sink has been given and has not answered; those of lanes wait as well
	Early    int64 // of Jobs, those whose time has not come
	Turn     int64 // when the rate next allows a job, in microseconds since the Unix epoch; 0: soon, or not known
}

// plus adds what another daemon has of the campaign.
func (m memory) plus(o memory) memory {
	turn := min(m.Turn, o.Turn)
	if turn == 0 {
		turn = max(m.Turn, o.Turn)
	}
	return memory{o.Campaign, m.Direct + o.Direct, m.Jobs + o.Jobs, m.Units + o.Units, m.InHand + o.InHand, m.Early + o.Early, turn}
}

// count is a number about a campaign, which is known by its hash.
type count struct {
	Of uint64
	N  int64
}

// note is what a daemon says of a campaign.
type note struct {
	Campaign uint64
	Cause    hold.Cause
	Since    int64 // microseconds since the Unix epoch
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

// activity is a count as it was when it last changed.
type activity struct {
	n  int64
	at time.Time
}

// trackActivity returns the counts with their last changes, and those that have changed within sentFor.
func trackActivity(before map[uint64]activity, counts []count, now time.Time) (after map[uint64]activity, lately []count) {
	after = make(map[uint64]activity, len(counts))
	for _, one := range counts {
		a := before[one.Of]
		if a.n != one.N {
			a = activity{one.N, now}
		}
		after[one.Of] = a
		if now.Sub(a.at) < sentFor {
			lately = append(lately, one)
		}
	}
	return after, lately
}

// sentFor is how long after its last job a campaign's tally is included in the part. Longer pauses do no harm: the
// other daemons remember the last tally.
const sentFor = 30 * time.Second

// part returns the part of this daemon.
func (t *Tracker) part(ctx context.Context) (*part, error) {
	jobs, err := t.opt.Work.InMemory(ctx)
	if err != nil {
		return nil, err
	}
	p, now := &part{Lanes: t.opt.Work.Backlog()}, time.Now()
	queued, inFlight := int64(0), int64(0)
	for _, m := range jobs {
		queued, inFlight = queued+m.Jobs, inFlight+m.InHand
		one := memory{Campaign: delivery.CampaignHash(m.Campaign), Direct: m.Direct, Jobs: m.Jobs, Units: m.Units, InHand: m.InHand, Early: m.Early}
		if m.Turn.After(now.Add(turnSoon)) {
			one.Turn = m.Turn.UnixMicro()
		}
		if one != (memory{Campaign: one.Campaign}) {
			p.Memory = append(p.Memory, one)
		}
	}
	t.count(p, now)
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
		n := note{Campaign: delivery.CampaignHash(s.Campaign), Cause: hold.Failing, Since: s.Since.UnixMicro()}
		if s.Refused {
			n.Cause = hold.Refused
		}
		p.Stuck = append(p.Stuck, n)
	}
	return p, err
}

// count adds to the part what this daemon has sent.
func (t *Tracker) count(p *part, now time.Time) {
	var units []count
	for _, tally := range t.opt.Work.Tallies() {
		units = append(units, count{delivery.CampaignHash(tally.Campaign), tally.Sent})
	}
	t.active, p.Sent = trackActivity(t.active, units, now)
}
