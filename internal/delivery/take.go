package delivery

import (
	"slices"
	"time"
)

// Ask is one campaign's part of a take: what a daemon would like to reserve on the campaign's timeline. Units
// are counted in slots; a job of weight w needs w consecutive slots and goes at the first.
type Ask struct {
	Campaign *Campaign
	// Want is how many units the daemon could send: queued and not yet granted, bounded by free sink capacity.
	Want int64
	// Weights are the weights of the jobs at the head of the queue, in order; nil when all are 1. A grant ends at a
	// job boundary; jobs beyond the listed ones are not granted.
	Weights []int64
	// More: jobs wait that are not asked for now.
	More bool
	// LastGranted is the store time of the latest slot the daemon was granted and has not given back (0: none). The
	// timeline never falls back below it.
	LastGranted int64
	// Jumped is by how much the shard's clock had jumped when the caller heard of it last: LastGranted is by that.
	Jumped int64
	// Horizon is how far ahead of now slots are granted, Quantum the stretch a daemon asks for at once, and
	// LateTolerance how late a slot may be used; microseconds.
	Horizon       int64
	Quantum       int64
	LateTolerance int64
	// Gate is the id of the sink's gate, "" for none.
	Gate string
	// Bytes are the payload lengths of the jobs at the head of the queue, in order; nil unless the campaign has a quota
	// that counts bytes.
	Bytes []int64
	// Joint, if it is set, is the daemon's claim to each of the campaign's quotas. An ask for nothing with a claim is a look at how much
	// falls to the daemon.
	Joint []Joint
}

// Jobs returns how many of the jobs at the head begin within the first soft units and end within the first hard ones, and their units.
func (a *Ask) Jobs(soft, hard int64) (n int, units int64) {
	if a.Weights == nil {
		units = max(0, min(soft, hard))
		return int(min(units, MaxGrant)), units
	}
	for n < len(a.Weights) && units < soft && units+a.Weights[n] <= hard {
		units, n = units+a.Weights[n], n+1
	}
	return n, units
}

// WeightAfter returns the weight of the job that follows the first units.
func (a *Ask) WeightAfter(units int64) int64 {
	for _, w := range a.Weights {
		if units <= 0 {
			return w
		}
		units -= w
	}
	return 1
}

// Joint is a daemon's claim to a quota that its campaigns wait for; the zero value claims nothing.
type Joint struct {
	Cost int64 // the virtual service of one unit: the less, the more those weigh that wait; 0: there is no claim
	All  int64 // how many units all that wait could use
	Left int64 // and those of them for which nothing is asked yet
	Due  int64 // when the last of those that wait asks again
}

// WireMargin is how far in the past a slot may lie when it is granted, given the late tolerance: an ask that comes a little
// late does not move the timeline. The credit of a burst reaches further back. Microseconds.
func WireMargin(lateTolerance int64) int64 { return lateTolerance / 4 }

// Binding says which limit made a grant smaller than wanted.
type Binding uint8

// The kinds of binding limit.
const (
	BindNone  Binding = iota // everything wanted was granted
	BindRate                 // the timeline: no more slots within the horizon, or the daemon's share
	BindQuota                // a quota window
	BindGate                 // the sink's gate is closed
	BindHeld                 // rate 0
)

// Granted is the answer to one Ask.
type Granted struct {
	Units int64 // slots granted, consecutive from First
	First Slot  // without units: the last slot granted before
	Rate  Rate  // of the timeline the slots lie on: the newest revision the store has seen
	// Revision is the campaign revision in force in the store; higher than the caller's means that the caller's
	// catalog is stale.
	Revision int64
	// GrantedAt is the store time of the grant; a refund names it.
	GrantedAt int64
	// NextAt, when Units fell short of Want, is the earliest store time when asking again can bring more.
	NextAt int64
	Bound  Binding
	// BoundQuota and BoundWindow name the binding window when Bound is BindQuota.
	BoundQuota  string
	BoundWindow int
	// Competitors is how many daemons, the caller included, compete for the campaign's slots; at least 1.
	Competitors int64
	// Daemons is how many daemons asked for the campaign recently, the caller included; at least 1.
	Daemons int64
	// Waiting is how many of them have jobs that wait, the caller included; at least 1.
	Waiting int64
	// Windows are the states of the windows of the campaign's quotas, after the grant, in the order of the quotas
	// and their windows.
	Windows []WindowState
	// Shadowed says which quotas in shadow mode would have denied how many of the granted units.
	Shadowed []Shadowed
	// From says where the grant was made; a refund hands it back.
	From Provenance
}

// Refused is an answer without units that does not come from the store.
func Refused(c *Campaign, bound Binding) Granted {
	return Granted{Rate: c.Rate, Revision: c.Revision, Bound: bound, Competitors: 1, Daemons: 1, Waiting: 1, From: Provenance{Campaign: c}}
}

// Grant is what the daemon holds after the ask; Units may be 0. It does not name quotas that counted
// only a part of it: nobody knows whether they counted the units that are handed back.
func (g *Granted) Grant() Grant {
	from := g.From
	if len(g.Shadowed) > 0 {
		campaign := *from.Campaign
		campaign.Quotas = slices.DeleteFunc(slices.Clone(campaign.Quotas), func(q *Quota) bool {
			return slices.ContainsFunc(g.Shadowed, func(s Shadowed) bool { return s.Quota == q.ID })
		})
		from.Campaign = &campaign
	}
	return Grant{First: g.First, Rate: g.Rate, Units: g.Units, GrantedAt: g.GrantedAt, Revision: g.Revision, From: from}
}

// Shadowed is what a quota in shadow mode would have denied.
type Shadowed struct {
	Quota string
	Units int64
}

// Provenance is where a grant was made.
type Provenance struct {
	Shard int   // whose clock the slots and GrantedAt are on
	Epoch int64 // of the shard's data, 0 where it is not watched
	// Campaign is the campaign as it was asked for; the quotas of a Grant's are those that were debited.
	Campaign *Campaign
}

// LongSpan divides the windows of quotas: after the store has lost its data longer ones are rebuilt from the ledger, and others count as full
// for a span.
const LongSpan = 2 * time.Minute

// WindowState is what one window of a quota looks like after a take or a peek.
type WindowState struct {
	Quota     string
	Window    int   // index into Quota.Windows
	Remaining int64 // units that could be granted now
	ResetAt   int64 // store time at which the window would be full again if nothing more were granted
	// FreeAt, where nothing remains, is the store time when the next unit becomes free; 0 if the limit is 0.
	FreeAt int64
	Look   Look
}

// Look is what a daemon that looks hears of a quota; zero in other answers. Times are the store's.
type Look struct {
	Share   int64 // how many units fall to the daemon now
	MoreAt  int64 // when that may grow
	OpensAt int64 // when the quota can grant a unit: spending may be even; 0: it can now
}

// Grant is a stretch of slots a daemon holds: Units consecutive slots from First on a timeline of Rate. Refunding a
// grant hands its units back: slots at the end of the timeline become free again; windows get back what was never sent,
// into the very bucket it came from.
type Grant struct {
	First     Slot
	Rate      Rate
	Units     int64
	GrantedAt int64
	Revision  int64
	From      Provenance
	// BeginBy, if set, is the store time of the last slot where a job may begin. Later slots belong to a heavy job that begins earlier.
	// Once the windows of its quotas have lost the units, these slots must not be used.
	BeginBy int64
}

// Beyond is how many of the slots no job may begin at.
func (g *Grant) Beyond() int64 {
	if g.BeginBy == 0 {
		return 0
	}
	return g.Units - g.First.CountUntil(g.BeginBy, g.Rate, g.Units)
}

// TakeReply answers a take. Items are in the order of the asks.
type TakeReply struct {
	Items  []Granted
	Clocks []ShardClock // of the shards that answered
}

// ShardClock is the time of a shard at some moment between the call and the return of a take.
type ShardClock struct {
	Shard  int
	Now    int64
	Jumped int64 // by how much its clock has jumped, in all: what was granted before is lost
}

// GateCause is why the gate of a sink is closed.
type GateCause uint8

// The causes.
const (
	GateThrottled     GateCause = iota // the destination asked to wait
	GateFailing                        // the sink does not work
	GateMisconfigured                  // the sink refuses pacer's credentials or settings
)

// GateRefused is a cause of gates of single destinations: many jobs in a row were refused for good, and none is given up.
const GateRefused = GateMisconfigured + 1

// GateCauses lists every cause for the gate of a sink, for zero-initialising metrics.
var GateCauses = []GateCause{GateThrottled, GateFailing, GateMisconfigured}

func (c GateCause) String() string {
	return [...]string{"throttled", "failing", "misconfigured", "refused"}[c]
}

// Gate is that of a sink, or of one of its destinations. One without an Until is open.
type Gate struct {
	Sink        string
	Destination string // "": of the sink
	Cause       GateCause
	Since       time.Time // when it was closed for this cause; zero: not known
	Until       time.Time // nothing passes before; then one job passes, and one a second from then on, until it is opened
	At          time.Time // of a destination: when it was closed or opened last
}
