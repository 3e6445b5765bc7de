package view

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
)

// DeadLetters reads and replays dead letters.
type DeadLetters struct {
	deadletter.Topics
	Ingress  []string              // where jobs are published
	Payloads string                // how much of them is shown: PayloadsAll, PayloadsBeginning or PayloadsHidden
	Explain  func(err error) error // names the setting in an error of Kafka
	Log      *slog.Logger
}

// How much of a payload is shown: all, its first KiB, or nothing.
const (
	PayloadsAll       = "all"
	PayloadsBeginning = "beginning"
	PayloadsHidden    = "hidden"
)

const (
	// shownBytes is how much of a payload is shown where only its beginning is.
	shownBytes = 1 << 10
	// maxScanned bounds the dead letters that one look reads, maxLetters those that it shows, and maxCounted those that a dry run of a replay
	// reads.
	maxScanned = 10_000
	maxLetters = 100
	maxCounted = 5 * replay.MaxLetters
)

// unmarked says why letters are not shown as replayed that may have been.
func (d *DeadLetters) unmarked(err error) {
	d.Log.Warn("which letters were replayed is not shown", "error", err)
}

// Read returns one dead letter, with its payload.
func (d *DeadLetters) Read(ctx context.Context, place deadletter.Place) (*WholeLetter, error) {
	found, err := deadletter.Read(ctx, deadletter.Options{Topics: d.Topics, Unmarked: d.unmarked}, place)
	switch {
	case errors.Is(err, deadletter.ErrNoLetter):
		return nil, catalog.Fault(catalog.ErrNotFound, "%s", err)
	case err != nil:
		return nil, d.Explain(err)
	}
	return WholeLetterOf(&found, d.Payloads), nil
}

// letterOf is a dead letter as it is listed. An answer may repeat the payload, and is hidden with it.
func letterOf(d *deadletter.Letter, payloads string) Letter {
	l := Letter{
		Place: d.Place.String(), At: d.At.UTC(), Campaign: d.Campaign, JobID: d.JobID, Reason: string(d.Reason), Detail: d.Detail, Answer: d.Answer,
		Attempts: d.Attempts, Bytes: d.Bytes, Replayed: d.Replayed, Origin: d.Origin.String(),
	}
	if payloads == PayloadsHidden {
		l.Answer = ""
	}
	return l
}

// WholeLetterOf is all of a dead letter, and as much of its payload as may be shown.
func WholeLetterOf(d *deadletter.Letter, payloads string) *WholeLetter {
	w := &WholeLetter{Letter: letterOf(d, payloads), PayloadShown: cmp.Or(payloads, PayloadsAll), Truncated: d.Truncated > 0, Headers: []LetterHeader{}}
	w.Key, w.KeyBase64 = textOr64(d.Key)
	for _, h := range d.Headers {
		if h.Key == delivery.HeaderAnswer && payloads == PayloadsHidden {
			continue
		}
		shown := LetterHeader{Key: h.Key}
		shown.Value, shown.ValueBase64 = textOr64(h.Value)
		w.Headers = append(w.Headers, shown)
		at, err := time.Parse(time.RFC3339Nano, shown.Value)
		for key, into := range map[string]**time.Time{delivery.HeaderFirstRead: &w.FirstRead, delivery.HeaderExpiresAt: &w.ExpiresAt} {
			if h.Key == key && err == nil && *into == nil {
				*into = &at
			}
		}
	}
	if payloads == PayloadsHidden {
		return w
	}
	text, binary := textOr64(d.Payload)
	if payloads == PayloadsBeginning {
		text, binary = strings.ToValidUTF8(text[:min(len(text), shownBytes)], ""), binary[:min(len(binary), shownBytes)]
	}
	if w.PayloadBase64 = binary; binary == nil {
		w.Payload = &text
	}
	return w
}

// textOr64 returns bytes as text if they are UTF-8, else as binary.
func textOr64(b []byte) (text string, binary []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// Find looks for dead letters, the newest first.
func (d *DeadLetters) Find(ctx context.Context, f LetterFilter) (found Letters, err error) {
	before, err := deadletter.ParsePosition(f.After)
	if err != nil {
		return Letters{}, catalog.Fault(catalog.ErrInvalid, "after: %s", err)
	}
	limit := cmp.Or(f.Limit, maxLetters)
	f.Since = f.from(time.Now())
	var reached deadletter.Position
	options := deadletter.Options{
		Topics: d.Topics, Unmarked: d.unmarked, MaxScanned: maxScanned, Scanned: &found.Looked,
		Filter: f.Filter, Before: before, Reached: &reached,
	}
	if f.After != "" {
		options.Limit = limit // the counts were those of the first page
	}
	found.List, found.Counts = []Letter{}, []LetterCount{}
	matched, counts := 0, map[deadletter.Group]int{}
	err = deadletter.Newest(ctx, options, func(letter deadletter.Letter) error {
		matched++
		group := deadletter.Group{Campaign: letter.Campaign, Reason: letter.Reason}
		i, known := counts[group]
		if !known {
			i = len(found.Counts)
			counts[group] = i
			found.Counts = append(found.Counts, LetterCount{Campaign: letter.Campaign, Reason: string(letter.Reason)})
		}
		if found.Counts[i].Letters++; letter.Replayed {
			found.Counts[i].Replayed++
		} else {
			found.Counts[i].count(letter.Destination, letter.Detail)
		}
		if len(found.List) < limit {
			if found.List = append(found.List, letterOf(&letter, d.Payloads)); len(found.List) == limit {
				found.Next = reached.String()
			}
		}
		return nil
	})
	for i := range found.Counts {
		found.Counts[i].trim()
	}
	found.Next = cmp.Or(found.Next, reached.String()) // where the page is full, or else where the look has ended
	if found.More = cutShort(ctx, found.Looked, err); err != nil && !found.More {
		return Letters{}, d.Explain(err)
	}
	if !found.More && (matched < limit || matched == limit && f.After == "") {
		found.Next = "" // these were the last ones
	}
	found.More = found.More || f.After != "" && found.Next != ""
	slices.SortFunc(found.Counts, func(a, b LetterCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Reason, b.Reason))
	})
	return found, nil
}

// cutShort reports whether a look for letters has ended before the last one, but with an answer: what was found until then is more
// than nothing.
func cutShort(ctx context.Context, looked int, err error) bool {
	return errors.Is(err, deadletter.ErrMore) || err != nil && looked > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// Replay implements replay.Run.
func (d *DeadLetters) Replay(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
	if o.Topics, o.Ingress = d.Topics, d.Ingress; o.DryRun {
		o.MaxScanned = maxCounted
	}
	report, err := deadletter.Replay(ctx, o)
	switch {
	case errors.Is(err, deadletter.ErrMore):
		err = catalog.Fault(catalog.ErrInvalid, "more than %d dead letters were read; narrow the time", maxCounted)
	case err != nil && ctx.Err() == nil:
		err = d.Explain(err)
	}
	return report, err
}
