package app

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// Bounds on what `dead show` prints for people; programs get all of it.
const (
	shownPayload = 4 << 10
	shownBinary  = 256
)

// deadWhole is what `dead show --json` prints: a dead letter with everything it holds. What is not text is in the
// fields that end in base64.
type deadWhole struct {
	deadLetter
	FirstRead     *time.Time    `json:"first_read,omitempty"`
	ExpiresAt     *time.Time    `json:"expires_at,omitempty"`
	Truncated     bool          `json:"truncated,omitempty"` // only the beginning of the payload was kept
	Key           string        `json:"key,omitempty"`
	KeyBase64     []byte        `json:"key_base64,omitempty"`
	Headers       []shownHeader `json:"headers"`
	Payload       *string       `json:"payload,omitempty"`
	PayloadBase64 []byte        `json:"payload_base64,omitempty"`
	// Others are the places of older dead letters of the same job.
	Others []string `json:"others,omitempty"`
}

type shownHeader struct {
	Key         string `json:"key"`
	Value       string `json:"value,omitempty"`
	ValueBase64 []byte `json:"value_base64,omitempty"`
}

// DeadShow is `pacer dead show`: the dead letter at a place, or the newest one of a job.
func DeadShow(ctx context.Context, in Invocation, what string, payloadOnly bool) error {
	if payloadOnly && in.JSON {
		return usagef("--payload and --json exclude each other; give one of them")
	}
	s, err := in.services(NeedKafka)
	if err != nil {
		return err
	}
	defer s.close()
	d, others, err := s.findDead(ctx, what, unmarked(in.Stderr))
	if err != nil {
		return fmt.Errorf("show a dead letter: %w", brokersFault(err))
	}
	switch {
	case payloadOnly:
		return printPayload(in, d)
	case in.JSON:
		return writeJSON(in.Stdout, wholeDead(d, others))
	default:
		p := &printer{w: in.Stdout}
		showDead(p, d, others)
		return p.err
	}
}

// findDead looks for a place first, and for a job id where what is none. others are the places of older letters of the
// job.
func (s *services) findDead(
	ctx context.Context, what string, unmarked func(error),
) (found *requeue.DeadLetter, others []string, err error) {
	opts := requeue.DeadOptions{Client: s.kafka, Prefix: s.topics.Prefix, Unmarked: unmarked}
	if place, ok := parsePlace(strings.TrimPrefix(what, requeue.DeadTopic(s.topics.Prefix)+"/")); ok {
		d, err := requeue.ReadDead(ctx, opts, place)
		return &d, nil, err
	}
	opts.JobID = what
	err = requeue.ListDead(ctx, opts, func(d requeue.DeadLetter) error {
		if found != nil && len(others) < maxField {
			others = append(others, found.Place().String())
		}
		found = &d
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("there is none of job %s; pacer dead list shows what there is", strconv.Quote(what))
	}
	return found, others, err
}

// parsePlace reads partition/offset.
func parsePlace(text string) (place requeue.DeadPlace, ok bool) {
	partition, offset, found := strings.Cut(text, "/")
	if !found {
		return place, false
	}
	p, err := strconv.ParseUint(partition, 10, 31)
	if err != nil {
		return place, false
	}
	o, err := strconv.ParseUint(offset, 10, 63)
	return requeue.DeadPlace{Partition: int(p), Offset: int64(o)}, err == nil
}

// printPayload writes the payload as it is, and says on standard error if that is not all of it.
func printPayload(in Invocation, d *requeue.DeadLetter) error {
	_, err := in.Stdout.Write(d.Payload)
	if err != nil {
		return fmt.Errorf("write the payload: %w", err)
	}
	if d.Truncated > 0 {
		note := &printer{w: in.Stderr}
		note.line("pacer: only the first %d of %d bytes were kept", len(d.Payload), d.Truncated)
		return note.err
	}
	return nil
}

func wholeDead(d *requeue.DeadLetter, others []string) deadWhole {
	w := deadWhole{deadLetter: describeDead(d), Truncated: d.Truncated > 0, Others: others, Headers: []shownHeader{}}
	w.FirstRead, w.ExpiresAt = headerTime(d, delivery.HeaderFirstRead), headerTime(d, delivery.HeaderExpiresAt)
	w.Key, w.KeyBase64 = textOr64(d.Key)
	for _, h := range d.Headers {
		shown := shownHeader{Key: h.Key}
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

// textOr64 puts bytes where JSON can hold them.
func textOr64(b []byte) (text string, binary []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// headerTime is an instant that a header holds; nil where there is none that can be read.
func headerTime(d *requeue.DeadLetter, key string) *time.Time {
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

// showDead writes a dead letter for people.
func showDead(p *printer, d *requeue.DeadLetter, others []string) {
	w := wholeDead(d, others)
	p.line("place       %s", w.Place)
	p.line("campaign    %s", field(w.Campaign))
	p.line("job         %s", field(w.JobID))
	p.line("reason      %s", field(w.Reason))
	p.line("detail      %s", orDash(visible(w.Detail)))
	p.line("attempts    %d", w.Attempts)
	p.line("origin      %s", field(w.Origin))
	p.line("first read  %s", instant(w.FirstRead))
	p.line("died        %s", instant(&w.At))
	p.line("expires at  %s", instant(w.ExpiresAt))
	p.line("replayed    %s", map[bool]string{true: "yes", false: "no"}[w.Replayed])
	if len(d.Key) > 0 {
		p.line("key         %s", field(string(d.Key)))
	}
	p.line("headers     %d", len(d.Headers))
	for _, h := range d.Headers {
		p.line("  %s: %s", field(h.Key), field(string(h.Value)))
	}
	showPayload(p, d)
	if len(others) > 0 {
		p.line("older letters of this job: %s", strings.Join(others, ", "))
	}
}

func showPayload(p *printer, d *requeue.DeadLetter) {
	kept := ""
	if d.Truncated > 0 {
		kept = fmt.Sprintf(", the first of %d; the others were not kept", d.Truncated)
	}
	p.line("payload     %d bytes%s", len(d.Payload), kept)
	shown := d.Payload[:min(len(d.Payload), shownPayload)]
	if text, ok := asPrintable(shown); ok {
		for line := range strings.Lines(text) {
			p.line("  %s", visible(strings.TrimRight(line, "\r\n")))
		}
	} else {
		shown = shown[:min(len(shown), shownBinary)]
		for line := range strings.Lines(hex.Dump(shown)) {
			p.line("  %s", strings.TrimRight(line, "\n"))
		}
	}
	if rest := len(d.Payload) - len(shown); rest > 0 {
		p.line("  … %d more bytes; --payload prints all of them", rest)
	}
}

// asPrintable is the bytes as text, unless they are binary. The last character may have been cut.
func asPrintable(b []byte) (text string, ok bool) {
	for i := 0; i < utf8.UTFMax && len(b) > 0 && !utf8.Valid(b); i++ {
		b = b[:len(b)-1]
	}
	return string(b), utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}

// visible is text without anything that could steer a terminal or hide something: what cannot be seen is escaped.
func visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

func instant(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339Nano)
}
