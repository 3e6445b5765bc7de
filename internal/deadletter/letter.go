package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// Letter is a job that could not be delivered, as read from the topic of the dead letters.
type Letter struct {
	Place       Place
	At          time.Time // when it was written
	Campaign    string    // "" if the record does not contain it
	JobID       string
	Destination string // that the job names
	Reason      delivery.Reason
	Detail      string // one line
	Answer      string // the beginning of the last answer, one line
	Attempts    int
	Hops        int             // times the job was written to a lane
	Origin      delivery.Origin // zero if unknown
	ExpiresAt   time.Time
	Bytes       int // length of the payload, or what there would be
	// Truncated is the length in bytes of what could not be read, if the payload is not there for that; else 0.
	Truncated int
	Replayed  bool // it has been published again
	Key       []byte
	Headers   []delivery.Header // all of them, including pacer's own
	Payload   []byte

	written time.Time // of its record, by which the partition is ordered
}

// expired reports whether the time of the job is over. That of one whose campaign was completed is not: the campaign may be active again.
func (d *Letter) expired(now time.Time) bool {
	return d.Reason == delivery.ReasonExpired && d.Detail != delivery.DetailCompleted || !d.ExpiresAt.IsZero() && !now.Before(d.ExpiresAt)
}

// Filter selects dead letters, as the API takes it; empty fields select all. Of campaigns, delivery.UnknownCampaign means letters that name
// none.
type Filter struct {
	Campaign string          `query:"campaign" json:"campaign,omitempty" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces"`
	Reason   delivery.Reason `query:"reason" json:"reason,omitempty" enum:"undecodable,invalid_header,unknown_campaign,too_large,overweight,refused,attempts_exhausted,expired,rejected,deadline,unknown_destination,missing_key" doc:"why they died"`
	JobID    string          `query:"job_id" json:"job_id,omitempty" maxLength:"256"`
	To       string          `query:"destination" json:"destination,omitempty" maxLength:"256" doc:"that their jobs name"`
	Since    time.Time       `query:"since" json:"since,omitzero" doc:"written then or later, however long ago"`
	Until    time.Time       `query:"until" json:"until,omitzero" doc:"written before"`
	Places   []Place         `json:"-"` // at these alone; nil: at all
}

func (f *Filter) matches(d *Letter) bool {
	campaign := d.Campaign
	if !delivery.ValidCampaign(campaign) {
		campaign = delivery.UnknownCampaign
	}
	return (f.Campaign == "" || f.Campaign == campaign) && (f.Reason == "" || f.Reason == d.Reason) &&
		(f.JobID == "" || f.JobID == d.JobID) && (f.To == "" || f.To == d.Destination) &&
		(f.Places == nil || slices.Contains(f.Places, d.Place)) &&
		!d.At.Before(f.Since) && (f.Until.IsZero() || d.At.Before(f.Until))
}

// Topics names the topics of dead letters.
type Topics struct {
	Client  *broker.Client
	Letters string // the dead letters
	Replays string // the notes of which letters have been replayed
	// Left, if set, is told which letters have left the dead ones: those that a replay has published for the first time.
	Left func(ctx context.Context, letters []*Letter)
}

// Options selects the dead letters to list.
type Options struct {
	Topics
	Filter
	Limit int // at most this many letters; 0: all
	// MaxScanned bounds how many letters are read, also of those that do not match; 0: all. If there are more, List ends
	// with ErrMore.
	MaxScanned int
	// Scanned, if set, is set to how many letters have been read.
	Scanned *int
	// Before, if set, are the offsets of each partition before which Newest begins; a partition without one is read from its end.
	Before Position
	// Reached, if set, is the position of Newest: another call goes on from it.
	Reached *Position
	// Unmarked, if set, is called with the error of a note of a replay that cannot be decoded, and no letter is
	// reported as replayed. Without Unmarked, List and Read return the error.
	Unmarked func(error)
}

// replays reads which letters have been replayed.
func (o *Options) replays(ctx context.Context) (replays, error) {
	done, err := readReplays(ctx, &o.Topics)
	if errors.Is(err, errForeignNote) && o.Unmarked != nil {
		o.Unmarked(err)
		return nil, nil
	}
	return done, err
}

// ErrMore means that there are more letters than were to be read.
var ErrMore = errors.New("there are more dead letters than were to be read; narrow the time")

// count returns the number of partitions of one of the topics.
func (t *Topics) count(ctx context.Context, topic string) (int, error) {
	n, err := t.Client.Partitions(ctx, topic)
	if errors.Is(err, broker.ErrNoTopic) {
		err = fmt.Errorf("%w; run pacer migrate up", err)
	}
	return n, err
}

// ErrNoLetter means that there is no dead letter at a place.
var ErrNoLetter = errors.New("no dead letter lies there; it may have been removed with its retention")

// Read reads the dead letter at a partition and offset, as List yields it; filter and limit are ignored. The error is
// ErrNoLetter if there is none.
func Read(ctx context.Context, opts Options, place Place) (letter Letter, err error) {
	opts.Filter, opts.Limit, opts.MaxScanned = Filter{Places: []Place{place}}, 0, 0
	found := false
	err = List(ctx, opts, func(d Letter) error {
		letter, found = d, true
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s/%s: %w", opts.Letters, place, ErrNoLetter)
	}
	return letter, err
}

// Place is the position of a dead letter in the topic of the dead letters.
type Place struct {
	Partition int
	Offset    int64
}

// String returns partition/offset.
func (p Place) String() string {
	return strconv.Itoa(p.Partition) + "/" + strconv.FormatInt(p.Offset, 10)
}

// read decodes the headers of a dead letter. pacer wrote them, but those of a record that could not be decoded may
// contain anything: a header that cannot be parsed leaves its field zero.
func read(r delivery.Record) Letter {
	d := Letter{
		Place: Place{Partition: r.Partition, Offset: r.Offset}, At: r.Time, written: r.Time,
		Campaign: cmp.Or(r.Header(delivery.HeaderCampaign), r.Header(delivery.HeaderEnvelopeCampaign)),
		JobID:    r.Header(delivery.HeaderJobID), Destination: r.Header(delivery.HeaderDestination),
		Reason: delivery.Reason(r.Header(delivery.HeaderReason)), Detail: r.Header(delivery.HeaderDetail), Answer: r.Header(delivery.HeaderAnswer),
		Key: r.Key, Headers: r.Headers, Payload: r.Value,
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Header(delivery.HeaderEnqueuedAt)); err == nil {
		d.At = at
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Header(delivery.HeaderExpiresAt)); err == nil {
		d.ExpiresAt = at
	}
	d.Attempts, _ = strconv.Atoi(r.Header(delivery.HeaderAttempt))
	d.Hops, _ = strconv.Atoi(r.Header(delivery.HeaderHops))
	d.Truncated, _ = strconv.Atoi(r.Header(record.HeaderTruncated))
	if r.Flaw != nil {
		d.Truncated = max(d.Truncated, int(r.Flaw.Lost))
	}
	d.Bytes = max(len(r.Value), d.Truncated)
	if from, ok := record.ParseOrigin(r.Header(delivery.HeaderOrigin)); ok {
		d.Origin, d.Origin.TopicID = from, delivery.ParseTopicID(r.Header(delivery.HeaderOriginTopicID))
	}
	return d
}
