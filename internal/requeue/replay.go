package requeue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// HeaderReplayedFrom names the dead letter that a job was replayed from: <topic>/<partition>/<offset>. It stays with the
// job, also when that dies again.
const HeaderReplayedFrom = "pacer-replayed-from"

// ReplayOptions says which dead letters to replay, and where to.
type ReplayOptions struct {
	Client *kafka.Client
	Prefix string // of the owned topics; "pacer."
	// Ingress lists the ingress topics: a letter goes back to the one it came from, or else to the first.
	Ingress []string
	ToTopic string // if set, all go to this one
	DeadFilter
	Limit  int  // replay at most so many; 0: all
	DryRun bool // count, write nothing
	Again  bool // those that have been replayed before, too
	// DropExpiry replays letters whose expiry has passed, too, and takes the expiry off those.
	DropExpiry bool
	Rate       delivery.Rate // letters per second, evenly; zero: as fast as the broker takes them
	// Progress, if set, is told after each batch how many have been written so far.
	Progress func(replayed int)
}

// ReplayReport counts what a replay did, or, with DryRun, would do.
type ReplayReport struct {
	Matched   int               // letters selected
	Replayed  int               // written back and acknowledged; with DryRun, that would be
	Before    int               // left out: replayed before
	Truncated int               // left out: only a part of the payload was kept
	Expired   int               // left out: the job's expiry has passed, or it died of that
	Oversize  int               // left out: larger than the topic takes that they go to; a dry run does not find out
	Oversized []OversizeLetter  // the first of these, a few
	Topics    map[string]int    // Replayed by topic
	Groups    map[DeadGroup]int // Replayed by campaign and reason
	// Doubtful is how many letters of the batch that failed may have been written without being remembered as replayed.
	Doubtful int
	// GoOn is the time of the oldest letter that was chosen and perhaps not written, or else of the last that was: who
	// replays again goes on there. Zero when none was chosen.
	GoOn time.Time
}

// DeadGroup is what dead letters are counted by.
type DeadGroup struct {
	Campaign string
	Reason   delivery.Reason
}

// OversizeLetter is a dead letter that a topic did not take.
type OversizeLetter struct {
	Place DeadPlace
	Topic string // its max.message.bytes is too small
	Bytes int    // of the record, about
}

// Bounds of a replay.
const (
	replayBatch      = 500 // letters held before they are written
	replayBatchBytes = 4 << 20
	replayGrace      = 5 * time.Second        // for the batch that is being written when the replay is interrupted
	replayCatchUp    = 100 * time.Millisecond // of the rate, after the broker was slow
	replayOversized  = 10                     // letters of ReplayReport.Oversized
)

var (
	errNoIngress = errors.New("replay: an ingress topic is required")
	errEnough    = errors.New("the limit is reached")
)

// Replay writes the matching dead letters back onto ingress topics as new jobs: with their ids, so that a destination that
// has seen one can tell, but without attempts, hops, reason and origin (a lane would take a known origin for a
// repetition). The dead letters stay where they are; the topic of the replays remembers them, and the next replay leaves
// them out unless told otherwise. A letter that is larger than its topic takes is left out, and the replay goes on. When
// ctx ends, the batch under way is finished first. On an error the report counts what was acknowledged before it. A crash
// between a batch and its note leaves one batch that is sent again.
func Replay(ctx context.Context, opts ReplayOptions) (ReplayReport, error) {
	r := replay{opts: opts, pending: make(map[string]*replayPart), oversize: make(map[string]int)}
	r.report.Topics, r.report.Groups = make(map[string]int), make(map[DeadGroup]int)
	if len(opts.Ingress) == 0 {
		return r.report, errNoIngress
	}
	if r.opts.Prefix == "" {
		r.opts.Prefix = DefaultPrefix
	}
	var err error
	if r.producer, err = NewProducer(ProducerOptions{Client: opts.Client, Oversize: r.tooLarge}); err != nil {
		return r.report, err
	}
	if r.notes, err = NewProducer(ProducerOptions{Client: opts.Client}); err != nil {
		return r.report, err
	}
	if !opts.DryRun {
		_, err = Partitions(ctx, opts.Client, ReplaysTopic(r.opts.Prefix))
		if errors.Is(err, ErrNoTopic) {
			err = fmt.Errorf("%w; run pacer migrate up", err)
		}
		if err != nil {
			return r.report, err
		}
	}
	now := time.Now()
	list := DeadOptions{Client: opts.Client, Prefix: r.opts.Prefix, DeadFilter: opts.DeadFilter}
	err = ListDead(ctx, list, func(d DeadLetter) error { return r.add(ctx, &d, now) })
	if err == nil || errors.Is(err, errEnough) {
		err = r.flush(ctx)
	}
	for _, part := range r.pending { // what one topic has taken may be newer than what another refuses
		if r.report.GoOn.IsZero() || part.first.Before(r.report.GoOn) {
			r.report.GoOn = part.first
		}
	}
	return r.report, err
}

type replay struct {
	opts     ReplayOptions
	producer *Producer      // of jobs
	oversize map[string]int // bytes of those that producer left out of the batch, by HeaderReplayedFrom
	notes    *Producer      // a note must not be left out
	report   ReplayReport
	pending  map[string]*replayPart // by topic
	chosen   int                    // of all letters, less those found too large
	count    int                    // in pending
	bytes    int
	next     delivery.Slot // of the rate, in microseconds of Unix time
}

// replayPart is what a batch has for one topic.
type replayPart struct {
	records []Record
	letters []*DeadLetter // of each record
	first   time.Time     // of the oldest
	last    time.Time     // of the newest
}

func (r *replay) add(ctx context.Context, d *DeadLetter, now time.Time) error {
	r.report.Matched++
	expired := d.Reason == delivery.ReasonExpired || !d.ExpiresAt.IsZero() && !now.Before(d.ExpiresAt)
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
		r.acknowledged(r.topicFor(d), d, d.At)
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

// enough ends the replay at the limit. What is pending is written first: of what is too large another takes the place.
func (r *replay) enough(ctx context.Context) error {
	if r.opts.Limit == 0 || r.chosen < r.opts.Limit {
		return nil
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if r.chosen < r.opts.Limit {
		return nil
	}
	return errEnough
}

func (r *replay) topicFor(d *DeadLetter) string {
	switch {
	case r.opts.ToTopic != "":
		return r.opts.ToTopic
	case slices.Contains(r.opts.Ingress, d.Origin.Topic):
		return d.Origin.Topic
	default:
		return r.opts.Ingress[0]
	}
}

// pace waits for the slot of the next letter. What is pending is written first: its slots have come.
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
		if err := pause(ctx, time.Until(time.UnixMicro(r.next.Micros()))); err != nil {
			return err
		}
	}
	r.next = r.next.Advance(1, r.opts.Rate)
	return ctx.Err()
}

// hold adds the letter to the batch.
func (r *replay) hold(d *DeadLetter, dropExpiry bool) {
	topic := r.topicFor(d)
	part := r.pending[topic]
	if part == nil {
		part = &replayPart{first: d.At}
		r.pending[topic] = part
	}
	record := Record{Key: d.Key, Value: d.Payload, Headers: append(newLife(d.Headers, dropExpiry),
		delivery.Header{Key: HeaderReplayedFrom, Value: []byte(r.from(d))})}
	part.records = append(part.records, record)
	part.letters = append(part.letters, d)
	if d.At.Before(part.first) {
		part.first = d.At
	}
	if d.At.After(part.last) {
		part.last = d.At
	}
	r.count++
	r.bytes += publishedSize(record)
}

// from is where the letter lies, as the header of its replay says it.
func (r *replay) from(d *DeadLetter) string {
	return DeadTopic(r.opts.Prefix) + "/" + d.Place().String()
}

// tooLarge hears of a job that its topic does not take.
func (r *replay) tooLarge(record Record) {
	r.oversize[record.Header(HeaderReplayedFrom)] = publishedSize(record)
}

// flush writes what is pending, and then notes it. It goes on for a moment when ctx ends: half a batch cannot be told
// from a whole one afterwards.
func (r *replay) flush(ctx context.Context) error {
	if r.count == 0 {
		return nil
	}
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(replayGrace, cancel) })()
	for topic, part := range r.pending {
		acked, err := r.producer.Publish(writing, topic, All(part.records), nil)
		r.leaveOut(topic, part)
		if err != nil {
			r.report.Replayed += int(acked)
			r.report.Topics[topic] += int(acked)
			r.report.Doubtful = len(part.letters)
			return err
		}
		for _, d := range part.letters {
			r.acknowledged(topic, d, part.last)
		}
		if err := r.remember(writing, part.letters); err != nil {
			r.report.Doubtful = len(part.letters)
			return err
		}
		delete(r.pending, topic)
	}
	r.count, r.bytes = 0, 0
	if r.opts.Progress != nil {
		r.opts.Progress(r.report.Replayed)
	}
	return nil
}

// leaveOut takes the letters that were too large out of what was written to the topic.
func (r *replay) leaveOut(topic string, part *replayPart) {
	part.letters = slices.DeleteFunc(part.letters, func(d *DeadLetter) bool {
		bytes, found := r.oversize[r.from(d)]
		if found {
			r.chosen--
			r.report.Oversize++
			if len(r.report.Oversized) < replayOversized {
				r.report.Oversized = append(r.report.Oversized, OversizeLetter{Place: d.Place(), Topic: topic, Bytes: bytes})
			}
		}
		return found
	})
	clear(r.oversize)
}

func (r *replay) acknowledged(topic string, d *DeadLetter, at time.Time) {
	r.report.Replayed++
	r.report.Topics[topic]++
	r.report.Groups[DeadGroup{d.Campaign, d.Reason}]++
	if at.After(r.report.GoOn) {
		r.report.GoOn = at
	}
}

// remember writes down what was replayed.
func (r *replay) remember(ctx context.Context, letters []*DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	note := replayNote{At: time.Now().UTC()}
	for _, d := range letters {
		note.note(d)
	}
	value, err := json.Marshal(note)
	if err == nil {
		_, err = r.notes.Publish(ctx, ReplaysTopic(r.opts.Prefix), All([]Record{{Value: value}}), nil)
	}
	if err != nil {
		return fmt.Errorf("remember what was replayed: %w", err)
	}
	return nil
}

// newLife leaves out the headers that tell of the job's former life.
func newLife(headers []delivery.Header, dropExpiry bool) []delivery.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h delivery.Header) bool {
		return slices.Contains(bookkeeping, h.Key) || h.Key == HeaderReplayedFrom || dropExpiry && h.Key == delivery.HeaderExpiresAt
	})
}
