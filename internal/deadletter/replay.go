package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

// ReplayOptions selects the dead letters to replay, and where to.
type ReplayOptions struct {
	Topics
	// Ingress lists the ingress topics: a letter goes back to the one it came from, or else to the first.
	Ingress []string
	ToTopic string // if set, all go to this one
	Filter
	Limit  int  // at most this many letters; 0: all
	DryRun bool // count only, write nothing
	// MaxScanned is as of Options: a dry run that would read more ends with ErrMore.
	MaxScanned int
	Again      bool // include letters that were replayed before
	// DropExpiry also replays letters that have expired, without the expiry.
	DropExpiry bool
	Rate       delivery.Rate // letters per second, evenly spaced; zero: as fast as the broker accepts them
	// Progress, if set, is called after each batch with the number of letters written so far.
	Progress func(replayed int)
}

// ReplayReport counts what a replay did, or, with DryRun, would do.
type ReplayReport struct {
	Matched   int `json:"matched" doc:"letters that the filter selects"` // as far as they were read
	Replayed  int `json:"replayed" doc:"published as jobs again; in a dry run, would be"`
	Before    int `json:"before" doc:"left out: replayed before"`
	Truncated int `json:"truncated" doc:"left out: the payload could not be read"`
	Expired   int `json:"expired" doc:"left out: their time is over; drop_expiry replays them all the same"`
	Oversize  int `json:"oversize" doc:"left out: larger than their topic takes"` // unknown in a dry run
	Doubtful  int `json:"doubtful" doc:"of the last batch of a replay that failed: they may have been published, and would be once more"`

	More      bool             `json:"more" doc:"the limit was reached, so there may be more letters"`
	Oversized []OversizeLetter `json:"oversize_letters,omitempty" nullable:"false" doc:"the first ten of these"`
	Topics    map[string]int   `json:"topics,omitempty" doc:"replayed, by topic"`
	Groups    []ReplayedGroup  `json:"groups,omitempty" nullable:"false" doc:"replayed, by campaign and reason; from the thousandth on, in one"`
}

// ReplayedGroup is how many letters of a group were replayed.
type ReplayedGroup struct {
	Group
	Replayed int `json:"replayed"`
}

// Group is the key for counting dead letters.
type Group struct {
	Campaign string          `json:"campaign"`
	Reason   delivery.Reason `json:"reason"`
}

// Compare orders groups by campaign and reason.
func (g Group) Compare(other Group) int {
	return cmp.Or(cmp.Compare(g.Campaign, other.Campaign), cmp.Compare(g.Reason, other.Reason))
}

// OversizeLetter is a dead letter that a topic did not accept.
type OversizeLetter struct {
	Place string `json:"place"`
	Topic string `json:"topic" doc:"its max.message.bytes is too small"`
	Bytes int    `json:"bytes"` // approximate size of the record
}

// Bounds of a replay.
const (
	replayBatch      = 500 // letters collected before they are written
	replayBatchBytes = 4 << 20
	replayGrace      = 5 * time.Second        // for the current batch when the replay is interrupted
	replayCatchUp    = 100 * time.Millisecond // of the rate, after the broker was slow
	replayOversized  = 10                     // entries in ReplayReport.Oversized
	replayGroups     = 1000                   // entries in ReplayReport.Groups
)

var errEnough = errors.New("the limit is reached")

// Replay writes the matching dead letters back to ingress topics as new jobs. They keep their ids, so that a destination detects repeats,
// and lose attempts, hops, reason and origin (a lane would take a known origin for a repeat). The dead letters stay where they are; a
// note in the topic of the replays makes later replays leave them out, unless Again is set. A letter that is larger than its topic
// accepts is left out, and the replay continues. When ctx ends, the current batch is finished first. On an error the report counts what
// was acknowledged before it. After a crash between a batch and its note, that one batch is sent again.
func Replay(ctx context.Context, opts ReplayOptions) (ReplayReport, error) {
	r := replay{opts: opts, pending: make(map[string]*replayPart), oversize: make(map[string]int), groups: make(map[Group]int)}
	r.report.Topics = make(map[string]int)
	if len(opts.Ingress) == 0 {
		return r.report, errors.New("replay: an ingress topic is required")
	}
	r.producer = broker.NewProducer(broker.ProducerOptions{Client: opts.Client, Compress: true, Oversize: r.tooLarge})
	r.notes = broker.NewProducer(broker.ProducerOptions{Client: opts.Client})
	if !opts.DryRun {
		if _, err := opts.count(ctx, opts.Replays); err != nil {
			return r.report, err
		}
	}
	now := time.Now()
	list := Options{Topics: opts.Topics, Filter: opts.Filter, MaxScanned: opts.MaxScanned}
	err := List(ctx, list, func(d Letter) error { return r.add(ctx, &d, now) })
	if err == nil || errors.Is(err, errEnough) {
		err = r.flush(ctx)
	}
	for _, group := range slices.SortedFunc(maps.Keys(r.groups), Group.Compare) {
		r.report.Groups = append(r.report.Groups, ReplayedGroup{group, r.groups[group]})
	}
	return r.report, err
}

type replay struct {
	opts     ReplayOptions
	producer *broker.Producer // of jobs
	oversize map[string]int   // bytes of the jobs that producer left out of the batch, by HeaderReplayedFrom
	notes    *broker.Producer // must not leave out a note
	report   ReplayReport
	groups   map[Group]int          // letters replayed
	pending  map[string]*replayPart // by topic
	chosen   int                    // letters, less those found too large
	count    int                    // in pending
	bytes    int
	next     delivery.Slot // of the rate, microseconds since the Unix epoch
}

// replayPart is the part of a batch for one topic.
type replayPart struct {
	records []delivery.Record
	letters []*Letter // in the order of the records
}

func (r *replay) add(ctx context.Context, d *Letter, now time.Time) error {
	r.report.Matched++
	expired := d.expired(now)
	switch {
	case d.Replayed && !r.opts.Again:
		r.report.Before++
		return nil
	case d.Truncated > 0:
		r.report.Truncated++
		return nil
	case expired && !r.opts.DropExpiry:
		r.report.Expired++
		return nil
	}
	if r.chosen++; r.opts.DryRun {
		r.acknowledged(r.topicFor(d), d)
		return r.enough(ctx)
	}
	if err := r.pace(ctx); err != nil {
		return err
	}
	r.hold(d, expired)
	if r.count >= replayBatch || r.bytes >= replayBatchBytes {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	return r.enough(ctx)
}

// enough ends the replay at the limit. It writes what is pending first: letters that are too large are replaced by
// others.
func (r *replay) enough(ctx context.Context) error {
	if r.opts.Limit == 0 || r.chosen < r.opts.Limit {
		return nil
	}
	if err := r.flush(ctx); err != nil || r.chosen < r.opts.Limit {
		return err
	}
	r.report.More = true
	return errEnough
}

func (r *replay) topicFor(d *Letter) string {
	switch {
	case r.opts.ToTopic != "":
		return r.opts.ToTopic
	case slices.Contains(r.opts.Ingress, d.Origin.Topic):
		return d.Origin.Topic
	default:
		return r.opts.Ingress[0]
	}
}

// pace waits for the slot of the next letter. It writes what is pending first: its slots have come.
func (r *replay) pace(ctx context.Context) error {
	if r.opts.Rate.Zero() {
		return ctx.Err()
	}
	now := time.Now().UnixMicro()
	if r.next.At < now-replayCatchUp.Microseconds() {
		r.next = delivery.Slot{At: now}
	}
	if r.next.Micros() > now {
		if err := r.flush(ctx); err != nil {
			return err
		}
		if err := retry.Sleep(ctx, time.Until(time.UnixMicro(r.next.Micros()))); err != nil {
			return err
		}
	}
	r.next = r.next.Advance(1, r.opts.Rate)
	return ctx.Err()
}

// hold adds the letter to the batch.
func (r *replay) hold(d *Letter, dropExpiry bool) {
	topic := r.topicFor(d)
	part := r.pending[topic]
	if part == nil {
		part = &replayPart{}
		r.pending[topic] = part
	}
	again := delivery.Record{Key: d.Key, Value: d.Payload, Headers: append(newLife(d.Headers, dropExpiry),
		delivery.Header{Key: delivery.HeaderReplayedFrom, Value: []byte(r.from(d))})}
	part.records = append(part.records, again)
	part.letters = append(part.letters, d)
	r.count++
	r.bytes += broker.RecordSize(again)
}

// from returns the position of the letter, as in HeaderReplayedFrom.
func (r *replay) from(d *Letter) string {
	return r.opts.Letters + "/" + d.Place.String()
}

// tooLarge records a job that its topic does not accept.
func (r *replay) tooLarge(job delivery.Record) {
	r.oversize[job.Header(delivery.HeaderReplayedFrom)] = broker.RecordSize(job)
}

// flush writes what is pending, and then the note of it. It goes on for replayGrace when ctx ends, because afterwards
// a half-written batch cannot be told from a whole one.
func (r *replay) flush(ctx context.Context) error {
	if r.count == 0 {
		return nil
	}
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(replayGrace, cancel) })()
	for topic, part := range r.pending {
		acked, err := r.producer.Publish(writing, topic, broker.All(part.records), nil)
		r.leaveOut(topic, part)
		if err != nil {
			r.report.Replayed += int(acked)
			r.report.Topics[topic] += int(acked)
			r.report.Doubtful = len(part.letters)
			return err
		}
		for _, d := range part.letters {
			r.acknowledged(topic, d)
		}
		if err := r.remember(writing, part.letters); err != nil {
			r.report.Doubtful = len(part.letters)
			return err
		}
		r.leave(writing, part.letters)
		delete(r.pending, topic)
	}
	r.count, r.bytes = 0, 0
	if r.opts.Progress != nil {
		r.opts.Progress(r.report.Replayed)
	}
	return nil
}

// leaveOut removes the letters that were too large from those written to the topic.
func (r *replay) leaveOut(topic string, part *replayPart) {
	part.letters = slices.DeleteFunc(part.letters, func(d *Letter) bool {
		bytes, found := r.oversize[r.from(d)]
		if found {
			r.chosen--
			r.report.Oversize++
			if len(r.report.Oversized) < replayOversized {
				r.report.Oversized = append(r.report.Oversized, OversizeLetter{Place: d.Place.String(), Topic: topic, Bytes: bytes})
			}
		}
		return found
	})
	clear(r.oversize)
}

func (r *replay) acknowledged(topic string, d *Letter) {
	r.report.Replayed++
	r.report.Topics[topic]++
	group := Group{d.Campaign, d.Reason}
	if r.groups[group] == 0 && len(r.groups) >= replayGroups {
		group = Group{Campaign: "(others)"}
	}
	r.groups[group]++
}

// remember writes the note of a batch.
func (r *replay) remember(ctx context.Context, letters []*Letter) error {
	if len(letters) == 0 {
		return nil
	}
	note := replayNote{At: time.Now().UTC()}
	for _, d := range letters {
		note.note(d)
	}
	value, err := json.Marshal(note)
	if err == nil {
		_, err = r.notes.Publish(ctx, r.opts.Replays, broker.All([]delivery.Record{{Value: value}}), nil)
	}
	if err != nil {
		return fmt.Errorf("remember what was replayed: %w", err)
	}
	return nil
}

// leave tells which letters of a batch are not dead any more.
func (r *replay) leave(ctx context.Context, letters []*Letter) {
	if r.opts.Left == nil {
		return
	}
	r.opts.Left(ctx, slices.DeleteFunc(slices.Clone(letters), func(d *Letter) bool { return d.Replayed }))
}

// newLife leaves out the headers that describe the job's past.
func newLife(headers []delivery.Header, dropExpiry bool) []delivery.Header {
	return slices.DeleteFunc(record.NewLife(headers), func(h delivery.Header) bool {
		return h.Key == delivery.HeaderReplayedFrom || dropExpiry && h.Key == delivery.HeaderExpiresAt
	})
}
