package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// letter reads one dead letter, with its payload.
func (s *Services) letter(ctx context.Context, place deadletter.Place) (*view.WholeLetter, error) {
	options := deadletter.Options{Topics: s.DeadTopics(), Unmarked: s.unmarked}
	d, err := deadletter.Read(ctx, options, place)
	switch {
	case errors.Is(err, deadletter.ErrNoLetter):
		return nil, view.Fault(catalog.ErrNotFound, "%s", err)
	case err != nil:
		return nil, BrokersFault(err)
	}
	return showing(WholeLetter(&d), s.Config.HTTP.Payloads), nil
}

// unmarked says why letters are not shown as replayed that may have been.
func (s *Services) unmarked(err error) {
	s.Log.Warn("which letters were replayed is not shown", "error", err)
}

// shownBytes is how much of a payload is shown where only its beginning is.
const shownBytes = 1 << 10

// showing leaves of the payload of a letter what may be shown of it.
func showing(w *view.WholeLetter, payloads string) *view.WholeLetter {
	switch w.PayloadShown = cmp.Or(payloads, config.PayloadsAll); payloads {
	case config.PayloadsHidden:
		w.Payload, w.PayloadBase64 = nil, nil
	case config.PayloadsBeginning:
		w.PayloadBase64 = w.PayloadBase64[:min(len(w.PayloadBase64), shownBytes)]
		if w.Payload != nil && len(*w.Payload) > shownBytes {
			text := strings.ToValidUTF8((*w.Payload)[:shownBytes], "")
			w.Payload = &text
		}
	}
	return w
}

// DeadTopics are the topics of dead letters.
func (s *Services) DeadTopics() deadletter.Topics {
	return deadletter.Topics{Client: s.Kafka, Letters: requeue.DeadTopic(s.Topics.Prefix), Replays: requeue.ReplaysTopic(s.Topics.Prefix)}
}

// Letter is a dead letter as it is listed.
func Letter(d *deadletter.Letter) view.Letter {
	v := view.Letter{
		Place: d.Place.String(), At: d.At.UTC(), Campaign: d.Campaign, JobID: d.JobID, Reason: string(d.Reason), Detail: d.Detail,
		Attempts: d.Attempts, Bytes: d.Bytes, Replayed: d.Replayed,
	}
	if d.Origin != (delivery.Origin{}) {
		v.Origin = fmt.Sprintf("%s/%d/%d", d.Origin.Topic, d.Origin.Partition, d.Origin.Offset)
	}
	return v
}

// WholeLetter is all of a dead letter.
func WholeLetter(d *deadletter.Letter) *view.WholeLetter {
	w := &view.WholeLetter{Letter: Letter(d), PayloadShown: config.PayloadsAll, Truncated: d.Truncated > 0, Headers: []view.LetterHeader{}}
	w.FirstRead, w.ExpiresAt = headerTime(d, delivery.HeaderFirstRead), headerTime(d, delivery.HeaderExpiresAt)
	w.Key, w.KeyBase64 = textOr64(d.Key)
	for _, h := range d.Headers {
		shown := view.LetterHeader{Key: h.Key}
		shown.Value, shown.ValueBase64 = textOr64(h.Value)
		w.Headers = append(w.Headers, shown)
	}
	if text, binary := textOr64(d.Payload); binary == nil {
		w.Payload = &text
	} else {
		w.PayloadBase64 = binary
	}
	return w
}

// textOr64 returns bytes in the form in which JSON can hold them.
func textOr64(b []byte) (text string, binary []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// headerTime returns the instant in a header; nil if it is missing or unreadable.
func headerTime(d *deadletter.Letter, key string) *time.Time {
	for _, h := range d.Headers {
		if h.Key != key {
			continue
		}
		if at, err := time.Parse(time.RFC3339Nano, string(h.Value)); err == nil {
			return &at
		}
	}
	return nil
}

const (
	// maxScanned bounds the dead letters that one look reads, and maxLetters those that it shows.
	maxScanned = 10_000
	maxLetters = 100
)

// letters looks for dead letters, the newest first.
func (s *Services) letters(ctx context.Context, f view.LetterFilter) (found view.Letters, err error) {
	before, err := deadletter.ParsePosition(f.After)
	if err != nil {
		return view.Letters{}, view.Fault(catalog.ErrInvalid, "after: %s", err)
	}
	since, limit := f.Since, cmp.Or(f.Limit, maxLetters)
	if f.Last > 0 {
		since = time.Now().Add(-f.Last)
	}
	matched, counts := 0, map[[2]string]*view.LetterCount{}
	options := deadletter.Options{
		Topics: s.DeadTopics(),
		Filter: deadletter.Filter{
			Campaign: f.Campaign, Reason: delivery.Reason(f.Reason), JobID: f.JobID, Since: since, Until: f.Until,
		},
		Before: before, Mark: limit, Reached: func(p deadletter.Position) {
			if found.Next == "" { // where the page is full, or else where the look ends
				found.Next = p.String()
			}
		},
		Unmarked:   s.unmarked,
		MaxScanned: maxScanned, Scanned: &found.Looked,
	}
	if f.After != "" {
		options.Limit = limit // the counts were those of the first page
	}
	err = deadletter.Newest(ctx, options, func(d deadletter.Letter) error {
		key := [2]string{d.Campaign, string(d.Reason)}
		count := counts[key]
		if count == nil {
			count = &view.LetterCount{Campaign: d.Campaign, Reason: string(d.Reason)}
			counts[key] = count
		}
		count.Letters++
		matched++
		if d.Replayed {
			count.Replayed++
		}
		if len(found.List) < limit {
			found.List = append(found.List, Letter(&d))
		}
		return nil
	})
	if found.More = cutShort(ctx, found.Looked, err); err != nil && !found.More {
		return view.Letters{}, BrokersFault(err)
	}
	if !found.More && (matched < limit || matched == limit && f.After == "") {
		found.Next = "" // these were the last ones
	}
	found.More = found.More || f.After != "" && found.Next != ""
	if found.Counts = []view.LetterCount{}; found.List == nil {
		found.List = []view.Letter{}
	}
	for _, count := range counts {
		found.Counts = append(found.Counts, *count)
	}
	slices.SortFunc(found.Counts, func(a, b view.LetterCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Reason, b.Reason))
	})
	return found, nil
}

// cutShort reports whether a look for letters has ended before the last one, but with an answer: what was found until then is more
// than nothing.
func cutShort(ctx context.Context, looked int, err error) bool {
	return errors.Is(err, deadletter.ErrMore) || err != nil && looked > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded)
}
