package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// Letter is a job that could not be delivered, as read from the topic of the dead letters.
type Letter struct {
	Place     Place
	At        time.Time // when it was written
	Campaign  string    // "" if the record does not contain it
	JobID     string
	Reason    delivery.Reason
	Detail    string // one line
	Attempts  int
	Hops      int             // times the job was written to a lane
	Origin    delivery.Origin // zero if unknown
	ExpiresAt time.Time
	Bytes     int // length of the payload, or what there would be
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

// Filter selects dead letters; empty fields select all.
type Filter struct {
	Campaign string // delivery.UnknownCampaign: letters that name none
	Reason   delivery.Reason
	JobID    string
	Since    time.Time // written at this time or later
	Until    time.Time // written before this time
	Places   []Place   // at these alone; nil: at all
}

func (f *Filter) matches(d *Letter) bool {
	campaign := d.Campaign
	if !delivery.ValidCampaign(campaign) {
		campaign = delivery.UnknownCampaign
	}
	return (f.Campaign == "" || f.Campaign == campaign) && (f.Reason == "" || f.Reason == d.Reason) &&
		(f.JobID == "" || f.JobID == d.JobID) && (f.Places == nil || slices.Contains(f.Places, d.Place)) && !d.At.Before(f.Since) && (f.Until.IsZero() || d.At.Before(f.Until))
}

// Topics names the topics of dead letters.
type Topics struct {
	Client  *broker.Client
	Letters string // the dead letters
	Replays string // the notes of which letters have been replayed
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
	// Before, if set, are the offsets of each partition before which Newest begins, as a Position that it has reported; a partition without
	// one is read from its end.
	Before Position
	// Reached, if set, is called when Newest ends, and when it has yielded Mark letters if that is not 0: with the position from which it
	// would go on.
	Reached func(p Position)
	Mark    int
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

// List yields the matching dead letters that were written before the call, oldest first as far as their partitions are
// in order. It holds one fetch per partition in memory, whatever their number. It ends with the first error that yield
// returns.
func List(ctx context.Context, opts Options, yield func(Letter) error) error {
	n, err := opts.count(ctx, opts.Letters)
	if err != nil {
		return err
	}
	done, err := opts.replays(ctx)
	if err != nil {
		return err
	}
	sources := make([]iter.Seq2[delivery.Record, error], 0, n)
	for p := range n {
		at := broker.Partition{Topic: opts.Letters, ID: p}
		if opts.Places != nil {
			sources = append(sources, opts.between(ctx, at))
		} else {
			sources = append(sources, opts.Client.ScanSince(ctx, at, opts.Since))
		}
	}
	s := sieve{opts: &opts, done: done, yield: yield}
	for r, err := range merge(sources) {
		if err != nil {
			return err
		}
		if over, err := s.put(read(r)); over || err != nil {
			return err
		}
	}
	return nil
}

// between reads a partition from the first to the last of the places in it.
func (o *Options) between(ctx context.Context, at broker.Partition) iter.Seq2[delivery.Record, error] {
	first, last := int64(math.MaxInt64), int64(-1)
	for _, place := range o.Places {
		if place.Partition == at.ID {
			first, last = min(first, place.Offset), max(last, place.Offset)
		}
	}
	return func(yield func(delivery.Record, error) bool) {
		if last < 0 {
			return
		}
		for r, err := range o.Client.Scan(ctx, at, first) {
			if err == nil && r.Offset > last || !yield(r, err) || r.Offset == last {
				return
			}
		}
	}
}

// sieve yields the letters that match, each once, as many as are wanted.
type sieve struct {
	opts            *Options
	done            replays
	yield           func(Letter) error
	seen            seen
	scanned, listed int
}

// seen holds the letters that were read last. A letter is written twice if the broker's answer was lost, or if the daemon
// crashed before its commit.
type seen struct{ last, before map[uint64]bool }

const maxSeen = 50_000 // letters in each map

var seed = maphash.MakeSeed()

// repeats reports whether the letter is the second one of the same death of a job. It remembers the first.
func (s *seen) repeats(d *Letter) bool {
	if d.Origin.Topic == "" {
		return false
	}
	key := maphash.Comparable(seed, [...]any{d.Origin, d.Attempts, d.Hops})
	if s.last[key] || s.before[key] {
		return true
	}
	if s.last == nil || len(s.last) == maxSeen {
		s.last, s.before = make(map[uint64]bool), s.last
	}
	s.last[key] = true
	return false
}

// full reports whether no more are to be read.
func (s *sieve) full() bool { return s.opts.MaxScanned > 0 && s.scanned == s.opts.MaxScanned }

// put takes one letter that was read, and reports whether no more are wanted.
func (s *sieve) put(d Letter) (over bool, err error) {
	if s.full() {
		return true, ErrMore
	}
	if s.scanned++; s.opts.Scanned != nil {
		*s.opts.Scanned = s.scanned
	}
	if !s.opts.matches(&d) || s.seen.repeats(&d) {
		return false, nil
	}
	d.Replayed = s.done.covers(&d)
	if err := s.yield(d); err != nil {
		return true, err
	}
	s.listed++
	return s.listed == s.opts.Limit, nil
}

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

// MarshalText returns String, for JSON.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// merge merges sequences that are each ordered by record time.
func merge(sources []iter.Seq2[delivery.Record, error]) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		type head struct {
			first delivery.Record
			next  func() (delivery.Record, error, bool)
		}
		var heads []*head
		for _, s := range sources {
			next, stop := iter.Pull2(s)
			defer stop()
			heads = append(heads, &head{next: next})
		}
		var failed error
		advance := func(h *head) (over bool) {
			if failed != nil {
				return false // the others are not read either
			}
			var ok bool
			h.first, failed, ok = h.next()
			return !ok
		}
		heads = slices.DeleteFunc(heads, advance)
		for len(heads) > 0 && failed == nil {
			oldest := slices.MinFunc(heads, func(a, b *head) int { return a.first.Time.Compare(b.first.Time) })
			if !yield(oldest.first, nil) {
				return
			}
			if advance(oldest) {
				heads = slices.DeleteFunc(heads, func(h *head) bool { return h == oldest })
			}
		}
		if failed != nil {
			yield(delivery.Record{}, failed)
		}
	}
}

// read decodes the headers of a dead letter. pacer wrote them, but those of a record that could not be decoded may
// contain anything: a header that cannot be parsed leaves its field zero.
func read(r delivery.Record) Letter {
	d := Letter{
		Place: Place{Partition: r.Partition, Offset: r.Offset}, At: r.Time, written: r.Time,
		Campaign: cmp.Or(r.Header(delivery.HeaderCampaign), r.Header(delivery.HeaderEnvelopeCampaign)), JobID: r.Header(delivery.HeaderJobID),
		Reason: delivery.Reason(r.Header(delivery.HeaderReason)), Detail: r.Header(delivery.HeaderDetail),
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
