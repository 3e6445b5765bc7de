package view

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
)

// TestLookForLettersThatIsCutShort: what was found until then is shown, but a broker that does not answer at all is an error.
func TestLookForLettersThatIsCutShort(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, tt := range []struct {
		ctx    context.Context
		looked int
		err    error
		want   bool
	}{
		{t.Context(), 5, nil, false}, {t.Context(), 5, deadletter.ErrMore, true}, {t.Context(), 5, io.EOF, false}, {late, 5, late.Err(), true},
		{late, 5, nil, false}, {late, 0, late.Err(), false}, {left, 5, left.Err(), false},
	} {
		if got := cutShort(tt.ctx, tt.looked, tt.err); got != tt.want {
			t.Errorf("%d letters, then %v: %v", tt.looked, tt.err, got)
		}
	}
}

// TestLastCountsBackFromUntil: what was written before a time is looked for until then.
func TestLastCountsBackFromUntil(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	past, ahead := now.Add(-48*time.Hour), now.Add(time.Hour)
	for _, tt := range []struct {
		last         time.Duration
		since, until time.Time
		want         time.Time
	}{
		{time.Hour, time.Time{}, time.Time{}, now.Add(-time.Hour)}, {time.Hour, time.Time{}, past, past.Add(-time.Hour)},
		{time.Hour, time.Time{}, ahead, now.Add(-time.Hour)}, {0, past, now, past},
	} {
		f := LetterFilter{Last: tt.last, Filter: deadletter.Filter{Since: tt.since, Until: tt.until}}
		if got := f.from(now); !got.Equal(tt.want) {
			t.Errorf("%+v: since %s, want %s", tt, got, tt.want)
		}
	}
}

// TestPayloadsAreShownAsConfigured: all, the first KiB in whole characters, or nothing.
func TestPayloadsAreShownAsConfigured(t *testing.T) {
	t.Parallel()
	text, binary := "a"+strings.Repeat("é", 1000), bytes.Repeat([]byte{0xff}, 2000)
	for payloads, want := range map[string][2]int{"": {2001, 2000}, "all": {2001, 2000}, "beginning": {1023, 1024}, "hidden": {-1, 0}} {
		d := WholeLetterOf(&deadletter.Letter{Payload: []byte(text)}, payloads)
		length := -1
		if d.Payload != nil {
			length = len(*d.Payload)
		}
		said := []delivery.Header{{Key: delivery.HeaderAnswer, Value: []byte("no")}}
		if w := WholeLetterOf(&deadletter.Letter{Answer: "no", Headers: said}, payloads); (w.Answer == "no") != (payloads != "hidden") || len(w.Headers) != len(w.Answer)/2 {
			t.Errorf("%q: answer %q, headers %v", payloads, w.Answer, w.Headers)
		}
		other := WholeLetterOf(&deadletter.Letter{Payload: binary}, payloads)
		if got := [2]int{length, len(other.PayloadBase64)}; got != want || d.PayloadShown != cmp.Or(payloads, "all") || other.Payload != nil {
			t.Errorf("%q: %v bytes, %s", payloads, got, d.PayloadShown)
		}
	}
}
