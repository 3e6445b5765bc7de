package requeue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/segmentio/kafka-go"
)

// replayNote is what a replay writes into the topic of the replays after each batch that the broker has acknowledged:
// which dead letters it published again. A dead letter itself is never changed: it lies in a log.
type replayNote struct {
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
func (n *replayNote) note(d *DeadLetter) {
	i := slices.IndexFunc(n.Letters, func(l notedSpans) bool { return l.Partition == d.Partition })
	if i < 0 {
		i = len(n.Letters)
		n.Letters = append(n.Letters, notedSpans{Partition: d.Partition})
	}
	l := &n.Letters[i]
	if d.At.After(l.Newest) {
		l.Newest = d.At
	}
	if last := len(l.Spans) - 1; last >= 0 && l.Spans[last][1] == d.Offset-1 {
		l.Spans[last][1] = d.Offset
		return
	}
	l.Spans = append(l.Spans, [2]int64{d.Offset, d.Offset})
}

// replays knows which dead letters have been replayed, by partition. Read-only once read.
type replays map[int]*replayedSpans

// replayedSpans are sorted by their first offset. Spans overlap where letters were replayed twice.
type replayedSpans struct {
	spans    []replayedSpan
	lastUpTo []int64 // the largest last offset of the spans up to each
}

type replayedSpan struct {
	first, last int64
	newest      time.Time
}

var errForeignNote = errors.New("is not pacer's")

// readReplays reads every note. A cluster whose topics were made by an older version has none. The error is
// errForeignNote for a record that is none.
func readReplays(ctx context.Context, client *kafka.Client, prefix string) (replays, error) {
	done := make(replays)
	topic := ReplaysTopic(prefix)
	n, err := Partitions(ctx, client, topic)
	if errors.Is(err, ErrNoTopic) {
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	for p := range n {
		err := Scan(ctx, client, topic, p, FromStart, func(r Record) error {
			var note replayNote
			if err := json.Unmarshal(r.Value, &note); err != nil {
				return fmt.Errorf("the record at %s/%d/%d %w: %w", topic, p, r.Offset, errForeignNote, err)
			}
			done.add(&note)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, s := range done {
		s.index()
	}
	return done, nil
}

func (r replays) add(note *replayNote) {
	for _, l := range note.Letters {
		s := r[l.Partition]
		if s == nil {
			s = &replayedSpans{}
			r[l.Partition] = s
		}
		for _, span := range l.Spans {
			s.spans = append(s.spans, replayedSpan{first: span[0], last: span[1], newest: l.Newest})
		}
	}
}

func (s *replayedSpans) index() {
	slices.SortFunc(s.spans, func(a, b replayedSpan) int { return cmp.Compare(a.first, b.first) })
	s.lastUpTo = make([]int64, len(s.spans))
	most := int64(-1)
	for i, span := range s.spans {
		most = max(most, span.last)
		s.lastUpTo[i] = most
	}
}

// covers tells whether the letter has been replayed. A letter that is newer than all that a note speaks of is another
// one at the same offset: the topic has been made anew since.
func (r replays) covers(d *DeadLetter) bool {
	s := r[d.Partition]
	if s == nil {
		return false
	}
	after := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].first > d.Offset })
	for i := after - 1; i >= 0 && s.lastUpTo[i] >= d.Offset; i-- {
		if s.spans[i].last >= d.Offset && !d.At.After(s.spans[i].newest) {
			return true
		}
	}
	return false
}
