package delivery

import (
	"math"
	"sync/atomic"
	"time"
)

// CampaignCount is a number of jobs of one campaign, which is known by its CampaignHash.
type CampaignCount struct {
	Campaign uint64
	Jobs     int64
	Unread   int64 // of these, those of ingress and timers that are not in memory yet
	Retrying int64 // of those, the ones for which Job.Retrying holds
	Due      int64 // when the last of those may be sent, in microseconds since the Unix epoch; 0: at once; DueUnknown: that is not known
}

// DueUnknown is the Due of jobs whose key has no turn for them yet.
const DueUnknown = math.MaxInt64

// Plus adds what another partition has of the campaign.
func (c CampaignCount) Plus(o CampaignCount) CampaignCount {
	return CampaignCount{o.Campaign, c.Jobs + o.Jobs, c.Unread + o.Unread, c.Retrying + o.Retrying, max(c.Due, o.Due)}
}

// LaneBacklog is the backlog of one lane: jobs that are not settled, including those offered to the
// pacer.
type LaneBacklog struct {
	Lane    int
	Waiting []CampaignCount // in no order, each campaign once
}

// LanesBacklog is the backlog of the lanes that one daemon reads, and of its partitions of ingress and timers.
type LanesBacklog struct {
	Generation   int32 // of the consumer group, by which the lanes were assigned
	Lanes        []LaneBacklog
	Unreadable   []int            // lanes that are not read, since what was committed for them cannot be read
	Ingress      []CampaignCount  // in no order, each campaign once
	Timers       []CampaignCount  // likewise
	Destinations map[string]int64 // of Timers, by the destination that jobs name
}

// MemoryJobs are the jobs of one campaign in a daemon's memory that wait for their turn or their time.
type MemoryJobs struct {
	Campaign string
	Jobs     int64
	Units    int64 // the weights of those that still need slots
	Retrying int64 // those for which Job.Retrying holds
	Early    int64 // those whose time has not come: of a back-off, a not-before, their next step, or a closed destination
	InHand   int64 // further jobs, which its sink has been given and has not answered
	// Turn is when the campaign's rate next allows a job; zero: now, or it is not known.
	Turn time.Time
}

// Trouble is that a sink takes no jobs of a campaign from this daemon.
type Trouble struct {
	Campaign    string
	Refused     bool   // they are refused for good; else they fail
	Destination string // that takes no jobs and keeps some of the campaign; "": the sink takes none
}

// Settled counts the jobs of one campaign or destination whose outcome is durable, by outcome. Those that were moved or found to be duplicates are not in it.
type Settled [OutcomeCapped + 1]int64

// SettledOutcomes are those that Settled counts, in the order of the columns of pacer.campaign_progress.
var SettledOutcomes = []Outcome{OutcomeDelivered, OutcomeDead, OutcomeExpired, OutcomeCancelled, OutcomeRejected, OutcomeCapped}

// Total is how many jobs are settled for good.
func (s Settled) Total() (total int64) {
	for _, n := range s {
		total += n
	}
	return total
}

// Plus adds two counts.
func (s Settled) Plus(o Settled) Settled {
	for i, n := range o {
		s[i] += n
	}
	return s
}

// Minus is the number of jobs settled since before.
func (s Settled) Minus(before Settled) Settled {
	for i, n := range before {
		s[i] -= n
	}
	return s
}

// Tally is the work one daemon has done for a campaign or a destination since it started.
type Tally struct {
	Campaign    string // "": of the destination
	Destination string
	Settled     Settled
	Sent        int64 // units, each attempt alike
	Unsent      int64 // units of jobs that were settled for good without being sent: they were too late, too many, or not wanted
}

// Answer is what a destination said to a job.
type Answer struct {
	At     time.Time `json:"at"`
	Job    string    `json:"job_id"`
	Class  string    `json:"class" doc:"what it means: delivered, rejected, permanent, temporary, throttled, unreachable, misconfigured or pending"`
	Status int       `json:"status,omitempty" doc:"of HTTP"`
	Detail string    `json:"detail,omitempty" doc:"why the job was not taken, in one line"`
	Answer string    `json:"answer,omitempty" doc:"how the answer to a job that was not taken begins; for operators and admins"`
}

// KeptAnswers is how many answers of a destination are kept.
const KeptAnswers = 10

// Progress is written to the catalog for a campaign or a destination: the jobs settled since the last write, and those that wait.
type Progress struct {
	Campaign    string // "": of the destination
	Destination string
	Settled     Settled
	Outlook     *Outlook // nil: leave what is kept as it is
	Answers     []Answer // of the destination, since the last write, the newest last
}

// Backlog is how many jobs of a campaign are not settled: in ingress, lanes, timers and memory.
type Backlog struct {
	Waiting  int64 `json:"waiting" doc:"jobs that were not tried yet"`
	Retrying int64 `json:"retrying" doc:"jobs that were tried before, or put off by their destination"`
	InFlight int64 `json:"in_flight" doc:"jobs that a sink was given and has not answered"`
}

// Total is the number of all jobs.
func (b Backlog) Total() int64 { return b.Waiting + b.Retrying + b.InFlight }

// Plus adds two backlogs.
func (b Backlog) Plus(o Backlog) Backlog {
	return Backlog{b.Waiting + o.Waiting, b.Retrying + o.Retrying, b.InFlight + o.InFlight}
}

// Outlook is how much of a campaign was still to come at one moment.
type Outlook struct {
	Backlog
	DoneAt time.Time // when they will have been sent; zero: unknown
}

// Account counts the outcomes of the jobs of one campaign or destination since the start of the process. The zero value is empty. It is safe
// for concurrent use.
type Account struct {
	outcomes [OutcomeCapped + 1]atomic.Int64 // jobs
	// Units; see Tally.
	sent, unsent atomic.Int64
	// When a job was last taken, and when one last failed that is to be tried again; Unix microseconds, 0: never.
	success, failure atomic.Int64
}

// Add counts one settled job.
func (a *Account) Add(j *Job, o Outcome) {
	a.outcomes[o].Add(1)
	switch {
	case !o.Final() || j.State != nil: // it has only moved (see Tried), its first copy counts, or it was counted when its first step was done
	case o == OutcomeDelivered || o == OutcomeRejected || o == OutcomeDead && j.Attempt > 0:
		a.sent.Add(j.Weight)
	default:
		a.unsent.Add(j.Weight)
	}
}

// Tried counts a job that was sent and is to be sent again.
func (a *Account) Tried(j *Job) { a.sent.Add(j.Weight) }

// Succeeded records the time of a delivery.
func (a *Account) Succeeded(at time.Time) { a.success.Store(at.UnixMicro()) }

// Failed records the time of an attempt that failed.
func (a *Account) Failed(at time.Time) { a.failure.Store(at.UnixMicro()) }

// Last returns when a job was last taken, and when one last failed; zero: never.
func (a *Account) Last() (success, failure time.Time) {
	at := func(micros int64) (t time.Time) {
		if micros > 0 {
			t = time.UnixMicro(micros)
		}
		return t
	}
	return at(a.success.Load()), at(a.failure.Load())
}

// Jobs is how many jobs had the outcome.
func (a *Account) Jobs(o Outcome) int64 { return a.outcomes[o].Load() }

// Tally is the account of a campaign at this moment.
func (a *Account) Tally(campaign string) Tally {
	t := Tally{Campaign: campaign, Sent: a.sent.Load(), Unsent: a.unsent.Load()}
	for _, o := range SettledOutcomes {
		t.Settled[o] = a.Jobs(o)
	}
	return t
}

// Position is how far one partition of a lane or a timer has been read by a consumer group. It is kept in the
// catalog beside the group's own offsets, which expire when the group is empty for long.
type Position struct {
	Topic     string
	Partition int
	Committed int64  // the offset to go on from
	Metadata  string // of the commit: what is settled or left behind beyond Committed
	TopicID   TopicID
}
