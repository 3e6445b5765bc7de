// Package jobs reads the topics of an installation, to say where its jobs are, and cancels single ones.
package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	readers = 4 // of partitions, at a time
	// maxFound bounds the records of one job that are listed, and the events.
	maxFound = 100
	// markWithin bounds a use of the dedupe ledger.
	markWithin = 2 * time.Second
)

// Topics are those of an installation, and the group that reads them.
type Topics struct {
	Client *broker.Client
	Group  string
	requeue.TopicSpec
	Marks *dedupe.Desk // nil: there is no dedupe ledger
}

// Waiting is a record of a job that is not settled: the job waits there, or is being sent.
type Waiting struct {
	Place       string     `json:"place" doc:"topic/partition/offset"`
	Campaign    string     `json:"campaign"`
	Attempts    int        `json:"attempts" doc:"that were made"`
	WrittenAt   time.Time  `json:"written_at"`
	NotBefore   *time.Time `json:"not_before,omitempty"`
	Reason      string     `json:"reason,omitempty" doc:"why it was moved there"`
	Destination string     `json:"destination,omitempty" doc:"that the record names"`

	Mark dedupe.Mark `json:"mark,omitempty" enum:"in_flight,delivered,cancelled" doc:"what the dedupe ledger says of the job"`

	job dedupe.Job
}

// Found is what is known of a job.
type Found struct {
	Waiting []Waiting         `json:"waiting" doc:"its records that are not settled: it waits there, or is being sent"`
	Results []json.RawMessage `json:"results" doc:"its events, if results are written, the oldest first"`
	Unread  []string          `json:"unread" doc:"what could not be read in time, and why"`
}

// Each yields the records of the partitions of these topics, each with whether it is not settled: all of them if whole is set, else those
// from what is committed on. Where nothing is committed, all are unsettled. Partitions are read several at a time, and yield is called for one
// record at a time. The error names the topics that could not be read, and the partitions that could not be read to their ends.
func (t Topics) Each(ctx context.Context, topics []string, whole bool, yield func(at broker.Partition, r *delivery.Record, open bool)) error {
	var partitions []broker.Partition
	var errs []error
	for _, topic := range topics {
		of, err := t.Client.PartitionsOf(ctx, topic)
		partitions, errs = append(partitions, of...), append(errs, err)
	}
	commits, err := t.Client.Committed(ctx, t.Group, partitions)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	var reading errgroup.Group
	reading.SetLimit(readers)
	var mu sync.Mutex // guards the calls of yield, and errs
	for _, at := range partitions {
		reading.Go(func() error {
			err := t.read(ctx, at, commits[at], whole, func(r *delivery.Record, open bool) {
				mu.Lock()
				defer mu.Unlock()
				yield(at, r, open)
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			return nil
		})
	}
	_ = reading.Wait() // errs has them
	return errors.Join(errs...)
}

func (t Topics) read(ctx context.Context, at broker.Partition, commit broker.Commit, whole bool, yield func(r *delivery.Record, open bool)) error {
	open, err := offset.Unsettled(at.Topic == requeue.LaneTopic(t.Prefix), commit.Offset, commit.Metadata)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	from := commit.Offset
	if whole {
		from = 0
	}
	for r, err := range t.Client.Scan(ctx, at, from) {
		if err != nil {
			return err
		}
		yield(&r, open(campaignOf(&r), r.Offset))
	}
	return nil
}

// maxCounted bounds the records that Published reads, countBytes bytes at a time.
const (
	maxCounted = 1_000_000
	// maxNamed bounds the destinations of which it counts the jobs.
	maxNamed   = 10_000
	countBytes = 256 << 10
)

// Published returns how many jobs of a campaign the ingress topics hold before what is committed, and how many of them name each destination:
// they were settled or moved. Jobs that were published again from dead letters do not count. It is an error if the topics hold more records
// than are worth reading.
func (t Topics) Published(ctx context.Context, campaign string) (n int64, to map[string]int64, err error) {
	to = map[string]int64{}
	partitions, err := t.Client.PartitionsOf(ctx, t.Ingress...)
	if err != nil {
		return 0, nil, err
	}
	commits, err := t.Client.Committed(ctx, t.Group, partitions)
	if err != nil {
		return 0, nil, err
	}
	begins, err := t.Client.Offsets(ctx, broker.Earliest, partitions...)
	if err != nil {
		return 0, nil, err
	}
	records := int64(0)
	for _, at := range partitions {
		records += max(0, commits[at].Offset-begins[at])
	}
	if records > maxCounted {
		return 0, nil, fmt.Errorf("the ingress topics hold %d records, and at most %d are counted", records, maxCounted)
	}
	for _, at := range partitions {
		for from := begins[at]; from < commits[at].Offset; {
			out, err := t.Client.Fetch(ctx, broker.FetchRequest{Partition: at, Offset: from, MaxBytes: countBytes, Yields: true, Aside: true}, func(r *delivery.Record) error {
				if r.Offset < commits[at].Offset && r.Header(delivery.HeaderReplayedFrom) == "" && campaignOf(r) == campaign {
					n++
					if id := r.Header(delivery.HeaderDestination); id != "" && (to[id] > 0 || len(to) < maxNamed) {
						to[id]++
					}
				}
				return nil
			})
			if err == nil && out.Next <= from {
				err = errors.New("the broker answers without records")
			}
			if err != nil {
				return 0, nil, err
			}
			from = out.Next
		}
	}
	return n, to, nil
}

// campaignOf decodes only records that do not name their campaign in a header.
func campaignOf(r *delivery.Record) string {
	if id := r.Header(delivery.HeaderCampaign); id != "" {
		return id
	}
	return record.Decode(r, delivery.FromIngress, record.Limits{MaxWeight: delivery.MaxWeight}, r.Time).Campaign
}

// Question is which job to look for, and since when among the events.
type Question struct {
	ID    string
	Since time.Time
}

// Find looks for a job in the ingress topics, lanes and timers, as far as they are not settled, and among the events. What could not be read
// before ctx ends is named; there is no other error.
func (t Topics) Find(ctx context.Context, q Question) (Found, error) {
	found := Found{Waiting: []Waiting{}, Results: []json.RawMessage{}}
	errs := []error{t.waiting(ctx, map[string]bool{q.ID: true}, func(w Waiting) {
		if len(found.Waiting) < maxFound {
			found.Waiting = append(found.Waiting, w)
		}
	})}
	if t.Results {
		errs = append(errs, t.events(ctx, q.Since, q.ID, func(event []byte) {
			if len(found.Results) < maxFound && json.Valid(event) {
				found.Results = append(found.Results, event)
			}
		}))
	}
	slices.SortFunc(found.Waiting, func(a, b Waiting) int { return cmp.Or(a.WrittenAt.Compare(b.WrittenAt), cmp.Compare(a.Place, b.Place)) })
	if t.Marks != nil {
		errs = append(errs, t.mark(ctx, found.Waiting))
	}
	found.Unread = unread(errs...)
	return found, nil
}

// mark adds what the dedupe ledger says.
func (t Topics) mark(ctx context.Context, list []Waiting) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markWithin) // reading may have taken all the time there was
	defer cancel()
	named := make([]dedupe.Job, len(list))
	for i := range list {
		named[i] = list[i].job
	}
	marks, err := t.Marks.Look(ctx, named)
	for i := range marks {
		list[i].Mark = marks[i]
	}
	return err
}

// waiting yields the records of the jobs with these ids in the ingress topics, lanes and timers, as far as they are not settled.
func (t Topics) waiting(ctx context.Context, ids map[string]bool, yield func(Waiting)) error {
	topics := slices.DeleteFunc(t.Names(), func(name string) bool {
		_, wait := t.placeOf(name)
		return !wait
	})
	identities, _, err := t.Client.Identify(ctx, t.Ingress...) // ids that are places of records are unique in a topic
	return errors.Join(err, t.Each(ctx, topics, false, func(at broker.Partition, r *delivery.Record, open bool) {
		if named := r.Header(delivery.HeaderJobID); !open || named != "" && !ids[named] {
			return
		}
		r.TopicID = identities[at.Topic]
		from, _ := t.placeOf(at.Topic)
		if j := record.Decode(r, from, record.Limits{MaxWeight: delivery.MaxWeight}, r.Time); ids[j.ID] {
			yield(waiting(at, r, j))
		}
	}))
}

// unread says what could not be read, and why. What was too much to be read in time is one line.
func unread(errs ...error) []string {
	lines, late := []string{}, 0
	for _, err := range errs {
		for _, one := range parts(err) {
			if errors.Is(one, context.DeadlineExceeded) {
				late++
			} else {
				lines = append(lines, one.Error())
			}
		}
	}
	if late > 0 {
		lines = append(lines, fmt.Sprintf("%d partitions could not be read to their ends in time: too much waits in them", late))
	}
	return lines
}

// parts returns the errors that were joined.
func parts(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
	case !ok:
		list = append(list, err)
	default:
		for _, one := range joined.Unwrap() {
			list = append(list, parts(one)...)
		}
	}
	return list
}

// placeOf returns how the jobs of a topic are read, and whether any wait in it.
func (t Topics) placeOf(topic string) (from delivery.Place, wait bool) {
	switch {
	case slices.Contains(t.Ingress, topic):
		return delivery.FromIngress, true
	case topic == requeue.LaneTopic(t.Prefix):
		return delivery.FromLane, true
	}
	return delivery.FromTimer, strings.HasPrefix(topic, t.Prefix+"timer.")
}

func waiting(at broker.Partition, r *delivery.Record, j *delivery.Job) Waiting {
	w := Waiting{
		Place: fmt.Sprintf("%s/%d/%d", at.Topic, at.ID, r.Offset), Campaign: j.Campaign, Attempts: j.Attempt, WrittenAt: r.Time.UTC(), Reason: j.Reason, Destination: j.AnyDestination(),
		job: dedupe.Job{Campaign: j.Campaign, ID: j.ID, Scope: j.Scope()},
	}
	if due := j.ReadyAt().UTC(); !due.IsZero() {
		w.NotBefore = &due
	}
	return w
}

// events yields the events of a job since a time. Those of one job are in one partition, unless the broker did not take them there.
func (t Topics) events(ctx context.Context, since time.Time, id string, yield func(event []byte)) error {
	topic := requeue.ResultsTopic(t.Prefix)
	n, err := t.Client.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	at := broker.Partition{Topic: topic, ID: broker.HashPartition(id, n)}
	from, err := t.Client.Offsets(ctx, max(0, since.UnixMilli()), at)
	if err != nil {
		return err
	}
	first, some := from[at]
	if !some {
		return nil // none was written since
	}
	for r, err := range t.Client.Scan(ctx, at, first) {
		if err != nil {
			return err
		}
		if string(r.Key) == id {
			yield(r.Value)
		}
	}
	return nil
}
