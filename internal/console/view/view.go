// Package view computes what the console's pages and API show. A State is the whole installation at one moment. Its sources are the
// daemons' exchange, the catalog in memory, the quota store and the database.
package view

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/progress"
)

// Sources are where the console looks. Of those that are nil, a state leaves out what they know, and the others say that they are not there.
type Sources struct {
	// Snapshot returns the catalog; nil while it is not loaded. Required.
	Snapshot func() *delivery.Snapshot
	// Refresh returns once the catalog has what was committed before the call, or ctx ends.
	Refresh func(ctx context.Context)
	// Sink returns the configured sink of a campaign that names this one, or why there is none. Required.
	Sink func(name string) (id, fault string)
	// Sinks are the configured sinks.
	Sinks []Sink
	// Fleet reads what the daemons have exchanged.
	Fleet func(ctx context.Context) (*Fleet, error)
	// Senders reads which daemons send a campaign.
	Senders func(ctx context.Context, c *delivery.Campaign) ([]progress.Sender, error)
	// Gates reads which gates are closed, and Windows the windows of quotas, as far as they answer.
	Gates   func(ctx context.Context) ([]delivery.Gate, error)
	Windows func(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error)
	// Closed reads the destinations whose own gates are closed, by sink, those that were changed last first. Open opens the gate of a
	// sink, or of one of its destinations, for all daemons. It returns whether the gate was closed.
	Closed func(ctx context.Context) (map[string][]delivery.Gate, error)
	Open   func(ctx context.Context, sink, destination string) (closed bool, err error)
	// Catalog is the database; nil without one. Adjust changes what the windows of its quotas have counted, and Fault says why nothing is
	// sent to one of its destinations; "" if something may be.
	Catalog Catalog
	Adjust  func(ctx context.Context, quota string, a Adjustment) (Adjusted, error)
	Key     func(ctx context.Context, quota, value string) (*Key, error)
	SetKey  func(ctx context.Context, quota, value string, e KeyEdit) (*Key, error)
	Fault   func(*delivery.Destination) string
	// History reads what became of jobs lately.
	History func(ctx context.Context, of catalog.HistoryOf) ([]catalog.HistoryStep, error)
	// Test sends one job to a destination, beside all rates and quotas. Its sink is the first that can, where the row names none.
	Test func(ctx context.Context, destination, payload string) (*Tested, error)
	// Ingress are the topics of jobs, to which dead letters are replayed.
	Ingress []string
	// Replays are of dead letters.
	Replays *replay.Jobs
	Letters func(ctx context.Context, filter LetterFilter) (Letters, error)
	Letter  func(ctx context.Context, place deadletter.Place) (*WholeLetter, error)
	// Job finds the records of a job, and its events since a time. CancelJobs cancels jobs that wait.
	Job        func(ctx context.Context, q jobs.Question) (jobs.Found, error)
	CancelJobs func(ctx context.Context, c jobs.Cancellation) (jobs.Cancelled, error)
	// Stores returns which services answer, which it knows without asking them.
	Stores func() []Store
	// Degraded says what is wrong with the services, in one line; "" if nothing is.
	Degraded func() string
	Version  string
	// Hidden: payloads of dead letters are not shown, and neither are answers, which may repeat them.
	Hidden bool
	// Ledger: jobs wait for the dedupe ledger, which is in Redis.
	Ledger bool
	// Patience bounds the wait for the database, and for what is asked for one thing, where a program asks once; 0: as pages need it.
	Patience time.Duration
}

// complete makes those of the sources that are asked for one thing say why they are not there.
func (s *Sources) complete() {
	const noLetters = "dead letters cannot be read here"
	s.Letters, s.Letter = orAbsent(s.Letters, noLetters), orAbsent(s.Letter, noLetters)
	s.Job = orAbsent(s.Job, "jobs cannot be looked for here")
	s.CancelJobs = orAbsent(s.CancelJobs, "jobs cannot be cancelled here: Kafka must be known")
	s.History = orAbsent(s.History, "there is no database here, and so no history")
	if s.Replays == nil {
		err := absent(noLetters)
		run := func(context.Context, deadletter.ReplayOptions) (none deadletter.ReplayReport, _ error) {
			return none, err
		}
		lease := func(context.Context) (context.Context, func(), error) { return nil, nil, err }
		s.Replays = replay.New(run, lease, slog.New(slog.DiscardHandler))
	}
	if s.Stores == nil {
		s.Stores = func() []Store { return nil }
	}
	if s.Open == nil {
		s.Open = func(context.Context, string, string) (bool, error) {
			return false, absent("gates cannot be opened here")
		}
	}
	if s.Test == nil {
		s.Test = func(context.Context, string, string) (*Tested, error) { return nil, errNoDatabase }
	}
	if s.Adjust == nil {
		err := absent("no count and no key is known here: Redis and the database must be known")
		s.Adjust = func(context.Context, string, Adjustment) (Adjusted, error) { return Adjusted{}, err }
		s.Key = func(context.Context, string, string) (*Key, error) { return nil, err }
		s.SetKey = func(context.Context, string, string, KeyEdit) (*Key, error) { return nil, err }
	}
}

// orAbsent returns a source, or instead of nil one that says why it is not there.
func orAbsent[Q, A any](source func(context.Context, Q) (A, error), why string) func(context.Context, Q) (A, error) {
	if source != nil {
		return source
	}
	return func(context.Context, Q) (answer A, err error) { return answer, absent(why) }
}

func absent(why string) error { return catalog.Fault(catalog.ErrUnreachable, "%s", why) }

var (
	errNoDatabase = absent("there is no database here")
	// errUnread means that the database has a row that the catalog in memory lacks, also after it was to be read again.
	errUnread = absent("this process has not read it from the database yet")
)

// Fleet is what the daemons know together.
type Fleet struct {
	At                            time.Time
	Daemons                       []progress.Daemon
	Sinks                         map[string]*SinkFigures
	Destinations                  map[string][]DestinationFigures // those that answer most
	Keys                          []delivery.KeyWaits
	LateCapacity, LateDestination int64
	Counter                       string // who counts what was sent; counts of different ones cannot be compared
	Sent                          func(campaign string) (units int64, ok bool)
	Of                            func(c *delivery.Campaign) *hold.Board
	Failure                       func(sink, destination string) delivery.Failure
}

// Store is a service that the installation uses.
type Store struct {
	Name  string
	Up    bool
	Since *time.Time // since when it does not answer; nil: it does, or it has not answered yet
}

// StoreOf returns a service that has not answered since a time; zero: it answers.
func StoreOf(name string, since time.Time) Store { return Store{name, since.IsZero(), instant(since)} }

// Campaign is a campaign at one moment.
type Campaign struct {
	ID             string                    `json:"id"`
	State          string                    `json:"state" doc:"sending, idle, or what holds it"`
	Ramping        bool                      `json:"ramping,omitempty" doc:"it sends, and its ramp has not reached its rate yet"`
	Status         string                    `json:"status" enum:"active,paused,cancelled,completed"`
	PausedUntil    *time.Time                `json:"paused_until,omitempty" doc:"when its pause ends by itself"`
	Held           *Held                     `json:"held,omitempty" doc:"why it sends nothing"`
	Rate           string                    `json:"rate" doc:"as it was set: 500, 150/1m"`
	Allowed        float64                   `json:"allowed" doc:"units per second that its schedule allows now"`
	Sent           *float64                  `json:"sent,omitempty" doc:"units per second that all daemons send, over the last seconds"`
	Backlog        *int64                    `json:"backlog,omitempty" doc:"jobs that are not settled: in ingress, lanes, timers and memory"`
	States         *delivery.Backlog         `json:"backlog_states,omitempty" doc:"these, by state"`
	Sink           string                    `json:"sink" doc:"the configured sink, empty if there is none"`
	SinkSet        string                    `json:"sink_set" doc:"the sink as it was set, empty for the default one"`
	Quotas         []string                  `json:"quotas"`
	Keys           []delivery.KeyWaits       `json:"keys,omitempty" doc:"how its keyed quotas let jobs wait, of any campaign"`
	Lanes          []int                     `json:"lanes" doc:"where its backlog waits"`
	Senders        []progress.Sender         `json:"senders,omitempty" doc:"the daemons that send it; of one campaign only"`
	LastFailure    string                    `json:"last_failure,omitempty" doc:"when its sink last did not take a job, of any campaign, and why: if it has destinations, one that keeps jobs of the campaign; of one campaign only"`
	PriorityWeight int64                     `json:"priority_weight"`
	MaxInFlight    int                       `json:"max_in_flight" doc:"of one daemon; 0 for no limit"`
	Burst          int64                     `json:"burst"`
	Overflow       string                    `json:"overflow"`
	ExpectedTotal  int64                     `json:"expected_total,omitempty"`
	StartsAt       *time.Time                `json:"starts_at,omitempty"`
	EndsAt         *time.Time                `json:"ends_at,omitempty"`
	ActiveHours    string                    `json:"active_hours,omitempty"`
	TimeZone       string                    `json:"time_zone,omitempty"`
	ZoneMissing    string                    `json:"time_zone_missing,omitempty" doc:"of one campaign only"`
	AvoidMinutes   string                    `json:"avoid_minutes,omitempty" doc:"of one campaign only"`
	Ramp           string                    `json:"ramp,omitempty"`
	RampSince      *time.Time                `json:"ramp_since,omitempty"`
	JobTTL         string                    `json:"job_ttl,omitempty"`
	Note           string                    `json:"note,omitempty" doc:"of one campaign only"`
	FinishBy       *time.Time                `json:"finish_by,omitempty" doc:"until when its jobs are spread evenly"`
	Late           string                    `json:"late,omitempty" doc:"by how much it will miss its finish_by, and what is in the way; of one campaign only"`
	NextChange     *time.Time                `json:"next_change,omitempty" doc:"when its schedule next changes what it may send"`
	Revision       int64                     `json:"revision"`
	UpdatedAt      *time.Time                `json:"updated_at,omitempty"`
	Progress       *catalog.CampaignProgress `json:"progress,omitempty"`

	weight      float64 // mean of its jobs; 0: not known
	lastFailure string
	ready       bool // some of its backlog has no time that is to come
}

// Seen returns the revision of the campaign.
func (c *Campaign) Seen() int64 { return c.Revision }

// Held says what holds a campaign.
type Held struct {
	Cause  string     `json:"cause"`
	Why    string     `json:"why"`
	Since  *time.Time `json:"since,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	Remedy string     `json:"remedy"`
}

// Quota is a quota at one moment.
type Quota struct {
	ID             string `json:"id"`
	Mode           string `json:"mode"`
	Spend          string `json:"spend"`
	OnStoreFailure string `json:"on_store_failure"`
	Rollout        int64  `json:"rollout" doc:"percent of its campaigns that it counts and limits"`
	Unit           string `json:"unit"`
	catalog.Keying
	Shard         int                `json:"shard"`
	Revision      int64              `json:"revision"`
	Windows       []Window           `json:"windows"`
	Keys          *delivery.KeyWaits `json:"keys,omitempty" doc:"how it lets jobs wait, if it is keyed and lets any"`
	Unknown       string             `json:"unknown,omitempty" doc:"why it is not known what remains of its windows"`
	Campaigns     []string           `json:"campaigns" doc:"at most 1,000 of them"`
	CampaignCount int                `json:"campaign_count"`

	UpdatedAt *time.Time `json:"updated_at,omitempty" doc:"of one quota only"`
}

// Seen returns the revision of the quota.
func (q *Quota) Seen() int64 { return q.Revision }

// Window is a window of a quota at one moment.
type Window struct {
	Span      string     `json:"span"`
	Seconds   float64    `json:"seconds"`
	Limit     int64      `json:"limit"`
	Algorithm string     `json:"algorithm"`
	Anchor    string     `json:"anchor,omitempty"`
	Remaining *int64     `json:"remaining,omitempty" doc:"units that could be granted now"`
	FreeAt    *time.Time `json:"free_at,omitempty" doc:"where nothing remains, when the next unit will"`
	FullAt    *time.Time `json:"full_at,omitempty" doc:"when it would be full again if nothing more were sent"`
}

// Used returns the units that the window counts.
func (w *Window) Used() int64 {
	if w.Remaining == nil {
		return 0
	}
	return max(0, w.Limit-*w.Remaining)
}

// LetterFilter selects dead letters.
type LetterFilter struct {
	deadletter.Filter

	Last  time.Duration // how far back; 0: as Since says
	After string        // Next of the page before; "" for the newest ones
	Limit int           // letters of the page; 0: 100
}

// from returns since when the letters were written that are meant. Last counts back from Until if that is over.
func (f *LetterFilter) from(now time.Time) time.Time {
	switch {
	case f.Last <= 0:
		return f.Since
	case !f.Until.IsZero() && f.Until.Before(now):
		now = f.Until
	}
	return now.Add(-f.Last)
}

// Letters are dead letters: the newest ones, and the counts, of those that were looked at, which begins with the newest.
type Letters struct {
	List   []Letter      `json:"letters" doc:"a page of them, the newest first"`
	Counts []LetterCount `json:"counts" doc:"of those that were looked at: with after, of this page"`
	Next   string        `json:"next,omitempty" doc:"what to pass as after for the next page, of older ones; absent on the last"`
	Looked int           `json:"looked" doc:"letters that were looked at, the newest first"`
	More   bool          `json:"more" doc:"not all were looked at: there are older ones"`
}

// Letter is a dead letter, without its payload.
type Letter struct {
	Place    string    `json:"place" doc:"partition/offset in the topic of dead letters"`
	At       time.Time `json:"at"`
	Campaign string    `json:"campaign" doc:"empty if the record names none"`
	JobID    string    `json:"job_id"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail"`
	Answer   string    `json:"answer,omitempty" doc:"the beginning of the last answer, without secrets; for operators, and not where http.payloads is hidden"`
	Attempts int       `json:"attempts"`
	Origin   string    `json:"origin,omitempty" doc:"where the job was read: topic/partition/offset"`
	Bytes    int       `json:"bytes" doc:"of the payload"`
	Replayed bool      `json:"replayed"`
}

// ParsePlace reads partition/offset.
func ParsePlace(text string) (at deadletter.Place, ok bool) {
	partition, offset, _ := strings.Cut(text, "/")
	p, err := strconv.ParseUint(partition, 10, 31)
	if err != nil {
		return at, false
	}
	o, err := strconv.ParseUint(offset, 10, 63)
	return deadletter.Place{Partition: int(p), Offset: int64(o)}, err == nil
}

// WholeLetter is all of a dead letter. Binary values are in the members that end in base64.
type WholeLetter struct {
	Letter
	FirstRead     *time.Time     `json:"first_read,omitempty"`
	ExpiresAt     *time.Time     `json:"expires_at,omitempty"`
	Truncated     bool           `json:"truncated,omitempty" doc:"the payload could not be read"`
	Key           string         `json:"key,omitempty"`
	KeyBase64     []byte         `json:"key_base64,omitempty"`
	Headers       []LetterHeader `json:"headers" doc:"all of them, also those of pacer"`
	Payload       *string        `json:"payload,omitempty"`
	PayloadBase64 []byte         `json:"payload_base64,omitempty"`
	PayloadShown  string         `json:"payload_shown" enum:"all,beginning,hidden" doc:"how much of it http.payloads allows to be shown: all, its first KiB, or nothing"`
}

// LetterHeader is a header of a dead letter.
type LetterHeader struct {
	Key         string `json:"key"`
	Value       string `json:"value,omitempty"`
	ValueBase64 []byte `json:"value_base64,omitempty"`
}

// LetterCount is how many letters have a campaign and a reason.
type LetterCount struct {
	Campaign string `json:"campaign"`
	Reason   string `json:"reason"`
	Letters  int    `json:"letters"`
	Replayed int    `json:"replayed"`

	Answers []Answered `json:"answers,omitempty" doc:"what destinations answered most often, of letters that were not replayed"`
}

// Answered is how many letters have an answer of a destination.
type Answered struct {
	Destination string `json:"destination,omitempty" doc:"of the jobs; absent if they name none, and of all but the most frequent"`
	Answer      string `json:"answer" doc:"the status, or the beginning of what went wrong; others: of all but the most frequent"`
	Letters     int    `json:"letters"`
}
