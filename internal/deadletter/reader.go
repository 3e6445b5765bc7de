package deadletter

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/broker"
)

// Bounds of how many letters of a partition are read at once where the newest come first: they are held without their payloads.
const (
	minPortion = 32
	maxPortion = 512
)

// List yields the matching dead letters that were written before the call, oldest first as far as their partitions are in order. It holds
// one fetch per partition in memory. It ends with the first error that yield returns.
func List(ctx context.Context, opts Options, yield func(Letter) error) error {
	return opts.read(ctx, false, yield)
}

// Newest is List with the newest letters first, and without keys, headers and payloads.
func Newest(ctx context.Context, opts Options, yield func(Letter) error) error {
	return opts.read(ctx, true, yield)
}

// head is what was not taken yet of a partition.
type head struct {
	at          broker.Partition
	first, end  int64 // offsets
	next        func() (Letter, error, bool)
	letter      Letter // the next one, if it is loaded
	loaded, all bool   // all: there are no more
}

func (h *head) load() (err error) {
	if h.loaded || h.all {
		return nil
	}
	var more bool
	h.letter, err, more = h.next()
	h.loaded, h.all = more && err == nil, !more
	return err
}

// read yields the matching letters, those of all partitions in the order of their times.
func (o *Options) read(ctx context.Context, newest bool, yield func(Letter) error) error {
	n, err := o.count(ctx, o.Letters)
	if err != nil {
		return err
	}
	s := sieve{opts: o, yield: yield}
	if s.done, err = o.replays(ctx); err != nil {
		return err
	}
	heads, err := o.heads(ctx, n)
	if err != nil {
		return fmt.Errorf("find the letters: %w", err)
	}
	sign := 1 // of a comparison of times
	if newest {
		sign = -1
	}
	for _, h := range heads {
		letters := o.between(ctx, h.at, h.first, h.end)
		if newest {
			letters = o.backwards(ctx, h, n)
		}
		next, stop := iter.Pull2(letters)
		defer stop()
		h.next = next
	}
	for {
		var first *head
		for _, h := range heads {
			if err := h.load(); err != nil {
				return err
			}
			if h.loaded && (first == nil || sign*h.letter.written.Compare(first.letter.written) < 0) {
				first = h
			}
		}
		switch {
		case first == nil:
			return nil
		case o.MaxScanned > 0 && s.scanned == o.MaxScanned:
			return ErrMore
		}
		first.loaded, first.end = false, first.letter.Place.Offset
		if o.Reached != nil {
			*o.Reached = positionOf(heads)
		}
		if over, err := s.put(first.letter); over || err != nil {
			return err
		}
	}
}

// heads returns what there is to read of n partitions. Each question is asked once, for all of them: a page waits for the answers.
func (o *Options) heads(ctx context.Context, n int) ([]*head, error) {
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
	heads := make([]*head, n)
	for p, at := range all {
		h := &head{at: at, first: first[at], end: end[at]}
		if o.Places != nil {
			from, to := h.end, h.first
			for _, place := range o.Places {
				if place.Partition == p {
					from, to = min(from, place.Offset), max(to, place.Offset+1)
				}
			}
			h.first, h.end = max(h.first, from), min(h.end, to)
		}
		if p < len(o.Before) {
			h.end = min(h.end, o.Before[p])
		}
		heads[p] = h
	}
	return heads, nil
}

// between yields the letters of a partition from an offset up to but without another.
func (o *Options) between(ctx context.Context, at broker.Partition, from, to int64) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		if from >= to {
			return
		}
		for r, err := range o.Client.Scan(ctx, at, from) {
			if err == nil && r.Offset >= to || !yield(read(r), err) || r.Offset == to-1 {
				return
			}
		}
	}
}

// backwards yields the letters of one of n partitions, the newest first. A log is read forwards only, so it reads portions, the last one first.
func (o *Options) backwards(ctx context.Context, h *head, n int) iter.Seq2[Letter, error] {
	first, end, size := h.first, h.end, int64(maxPortion)
	if o.MaxScanned > 0 { // of many partitions only a little of each will be of use
		size = min(max(minPortion, int64(o.MaxScanned/max(1, n))), maxPortion)
	}
	return func(yield func(Letter, error) bool) {
		for ; first < end; end = max(first, end-size) {
			var portion []Letter // which is whole, or not there: a position must not leave letters out
			var seen seen        // a replay publishes the first of two, so that one is listed
			for d, err := range o.between(ctx, h.at, max(first, end-size), end) {
				if err != nil {
					yield(d, err)
					return
				}
				d.Key, d.Headers, d.Payload = nil, nil, nil // a list shows none
				if !seen.repeats(&d) {
					portion = append(portion, d)
				}
			}
			for _, d := range slices.Backward(portion) {
				if !yield(d, nil) {
					return
				}
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

// put takes one letter that was read, and reports whether no more are wanted.
func (s *sieve) put(d Letter) (over bool, err error) {
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
