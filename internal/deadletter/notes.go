package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/pacer/pacer/internal/broker"
)

// replayNote is written to the topic of the replays after each batch that the broker has acknowledged. It lists the
// dead letters that were published again, since a dead letter itself is a record of a log and cannot be changed.
type replayNote struct {
	Format  int          `json:"format,omitempty"` // absent: 1, the only one
	At      time.Time    `json:"at"`
	Letters []notedSpans `json:"letters"`
}

// notedSpans are replayed dead letters of one partition.
type notedSpans struct {
	Partition int        `json:"partition"`
	Spans     [][2]int64 `json:"spans"`  // first and last offset of each stretch, ascending
	Newest    time.Time  `json:"newest"` // of these letters
}

// note adds a replayed letter. Letters of a partition come in the order of their offsets.
func (n *replayNote) note(d *Letter) {
	i := slices.IndexFunc(n.Letters, func(l notedSpans) bool { return l.Partition == d.Place.Partition })
	if i < 0 {
		i = len(n.Letters)
		n.Letters = append(n.Letters, notedSpans{Partition: d.Place.Partition})
	}
	l := &n.Letters[i]
	if d.At.After(l.Newest) {
		l.Newest = d.At
	}
	if last := len(l.Spans) - 1; last >= 0 && l.Spans[last][1] == d.Place.Offset-1 {
		l.Spans[last][1] = d.Place.Offset
		return
	}
	l.Spans = append(l.Spans, [2]int64{d.Place.Offset, d.Place.Offset})
}

// replays holds the replayed dead letters, by partition. It is read-only once loaded; the spans of a partition are then
// sorted by their first offset. They overlap where letters were replayed twice.
type replays map[int][]replayedSpan

type replayedSpan struct {
	first, last int64
	upTo        int64 // the largest last offset of the spans up to this one
	newest      time.Time
}

var errForeignNote = errors.New("is not pacer's")

// readReplays reads every note. The error is errForeignNote for a record that is not a note.
func readReplays(ctx context.Context, t *Topics) (replays, error) {
	done := make(replays)
	n, err := t.Client.Partitions(ctx, t.Replays)
	if errors.Is(err, broker.ErrNoTopic) {
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	for p := range n {
		at := broker.Partition{Topic: t.Replays, ID: p}
		for r, err := range t.Client.Scan(ctx, at, 0) {
			if err != nil {
				return nil, err
			}
			var note replayNote
			if err := json.Unmarshal(r.Value, &note); err != nil {
				return nil, fmt.Errorf("the record at %s/%d %w: %w", at, r.Offset, errForeignNote, err)
			}
			if note.Format > 1 {
				return nil, fmt.Errorf("the record at %s/%d %w: its format is %d, and pacer reads format 1", at, r.Offset, errForeignNote, note.Format)
			}
			done.add(&note)
		}
	}
	done.index()
	return done, nil
}

func (r replays) add(note *replayNote) {
	for _, l := range note.Letters {
		for _, span := range l.Spans {
			r[l.Partition] = append(r[l.Partition], replayedSpan{first: span[0], last: span[1], newest: l.Newest})
		}
	}
}

func (r replays) index() {
	for _, spans := range r {
		slices.SortFunc(spans, func(a, b replayedSpan) int { return cmp.Compare(a.first, b.first) })
		most := int64(-1)
		for i := range spans {
			most = max(most, spans[i].last)
			spans[i].upTo = most
		}
	}
}

// covers reports whether the letter has been replayed. A letter newer than all letters of a note is another one at the
// same offset: the topic has been recreated since.
func (r replays) covers(d *Letter) bool {
	spans, offset := r[d.Place.Partition], d.Place.Offset
	after := sort.Search(len(spans), func(i int) bool { return spans[i].first > offset })
	for i := after - 1; i >= 0 && spans[i].upTo >= offset; i-- {
		if spans[i].last >= offset && !d.At.After(spans[i].newest) {
			return true
		}
	}
	return false
}
