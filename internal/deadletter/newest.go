package deadletter

import (
	"context"
	"fmt"
	"maps"

	"github.com/pacer/pacer/internal/broker"
)

// Bounds of how many letters of a partition are read at once: they are held without their payloads.
const (
	minPortion = 32
	maxPortion = 512
)

// Newest is List with the newest letters first, as far as their partitions are in order, and without keys, headers and payloads. A log
// is read forwards only: each partition is read in portions, the last one first.
func Newest(ctx context.Context, opts Options, yield func(Letter) error) error {
	n, err := opts.count(ctx, opts.Letters)
	if err != nil {
		return err
	}
	done, err := opts.replays(ctx)
	if err != nil {
		return err
	}
	portion := int64(maxPortion)
	if opts.MaxScanned > 0 { // of many partitions only a little of each will be of use
		portion = min(max(minPortion, int64(opts.MaxScanned/max(1, n))), maxPortion)
	}
	heads, err := opts.heads(ctx, n)
	if err != nil {
		return fmt.Errorf("find the letters: %w", err)
	}
	for _, b := range heads {
		b.portion = portion
	}
	s := sieve{opts: &opts, done: done, yield: yield}
	reached := func() {
		if opts.Reached != nil {
			opts.Reached(positionOf(heads))
		}
	}
	defer reached()
	for {
		newest, err := latest(ctx, heads)
		if err != nil || newest == nil {
			return err
		}
		if s.full() {
			return ErrMore
		}
		before := s.listed
		if over, err := s.put(newest.take()); over || err != nil {
			return err
		}
		if s.listed == opts.Mark && before < s.listed {
			reached()
		}
	}
}

// heads returns what there is to read of n partitions. Each question is asked once, for all of them: a page waits for the answers.
func (o *Options) heads(ctx context.Context, n int) ([]*backwards, error) {
	all := make([]broker.Partition, n)
	for p := range all {
		all[p] = broker.Partition{Topic: o.Letters, ID: p}
	}
	first, err := o.Client.Offsets(ctx, broker.Earliest, all...)
	if err != nil {
		return nil, err
	}
	end, err := o.Client.Offsets(ctx, broker.Latest, all...)
	if err != nil {
		return nil, err
	}
	if !o.Since.IsZero() {
		since, err := o.Client.Offsets(ctx, max(0, o.Since.UnixMilli()), all...) // a negative time is the name of an edge
		if err != nil {
			return nil, err
		}
		for at := range first {
			first[at] = end[at] // nothing was written since
		}
		maps.Copy(first, since)
	}
	heads := make([]*backwards, n)
	for p, at := range all {
		heads[p] = &backwards{client: o.Client, at: at, first: first[at], end: end[at]}
		if p < len(o.Before) {
			heads[p].end = min(heads[p].end, o.Before[p])
		}
	}
	return heads, nil
}

// latest returns the partition with the newest letter that was not taken yet; nil if there are no more.
func latest(ctx context.Context, heads []*backwards) (newest *backwards, err error) {
	for _, b := range heads {
		if err := b.fill(ctx); err != nil {
			return nil, err
		}
		if len(b.letters) > 0 && (newest == nil || b.last().written.After(newest.last().written)) {
			newest = b
		}
	}
	return newest, nil
}

// backwards reads a partition from its end.
type backwards struct {
	client     *broker.Client
	at         broker.Partition
	portion    int64
	first, end int64 // offsets that were not read yet
	letters    []Letter
}

// fill reads the portion before what was read last, if all of that was taken.
func (b *backwards) fill(ctx context.Context) error {
	for len(b.letters) == 0 && b.first < b.end { // a portion may hold nothing but markers
		from := max(b.first, b.end-b.portion)
		var portion []Letter // which is whole, or not there: a position must not leave letters out
		var seen seen        // a replay publishes the first of two, so that one is listed
		for r, err := range b.client.Scan(ctx, b.at, from) {
			if err != nil {
				return err
			}
			if r.Offset >= b.end {
				break
			}
			d := read(r)
			d.Key, d.Headers, d.Payload = nil, nil, nil // a list shows none
			if !seen.repeats(&d) {
				portion = append(portion, d)
			}
		}
		b.letters, b.end = portion, from
	}
	return nil
}

func (b *backwards) last() *Letter { return &b.letters[len(b.letters)-1] }

func (b *backwards) take() Letter {
	d := *b.last()
	b.letters = b.letters[:len(b.letters)-1]
	return d
}
