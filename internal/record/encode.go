package record

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/delivery"
)

// HeaderTruncated marks a dead letter whose payload could not be read. Its value is the length in bytes of what is missing. Such
// a letter cannot be replayed.
const HeaderTruncated = "pacer-truncated"

// MaxDetail bounds the detail of a dead letter in bytes.
const MaxDetail = 500

// Encoder encodes records one after the other in the same memory. It is not safe for concurrent use; the zero value is ready.
type Encoder struct {
	headers                   []delivery.Header
	memory                    []byte // of their values
	written, first, published last[time.Time, string]
	topicID                   last[delivery.TopicID, string]

	// Of the record that is encoded. The state and the provider are empty if the job has none.
	job      *delivery.Job
	state    *delivery.State
	provider *delivery.Provider
	unread   bool
	to       delivery.Reroute
	now      time.Time
}

var noState, noProvider = &delivery.State{}, &delivery.Provider{}

// Encode returns the record of a job for its destination, written at now. The record shares the job's memory, and is valid until
// the next call. Of a job that could not be read, the record keeps the producer's headers: the dead letter shows what was published.
func (e *Encoder) Encode(job *delivery.Job, to delivery.Reroute, now time.Time) delivery.Record {
	e.job, e.to, e.now, e.unread = job, to, now, unread(job)
	if e.state = noState; job.State.Valid() {
		e.state = job.State
	}
	e.provider = cmp.Or(job.Call.Provider, noProvider)
	e.headers, e.memory = slices.Grow(e.headers[:0], 20+len(job.Headers)), slices.Grow(e.memory[:0], 384)
	for i := range fields {
		f, from := &fields[i], len(e.memory)
		switch {
		case f.write == nil || f.dead && to.Kind != delivery.ToDead:
		case e.unread && !f.own && (!strings.HasPrefix(f.header, delivery.HeaderPrefix) || has(job.Headers, f.header)):
		default:
			f.write(e)
		}
		if to := len(e.memory); to > from {
			e.headers = append(e.headers, delivery.Header{Key: f.header, Value: e.memory[from:to:to]})
		}
	}
	for own, i := e.headers, 0; i < len(job.Headers); i++ {
		if h := job.Headers[i]; !rewritten(h.Key, e.unread) && !has(own, h.Key) {
			e.headers = append(e.headers, h)
		}
	}
	return delivery.Record{Time: now, Key: job.Key, Value: job.Payload, Headers: e.headers}
}

// unread reports whether the job's fields were not read from its record, which is therefore kept as it came.
func unread(job *delivery.Job) bool {
	switch job.Defect() {
	case delivery.ReasonUndecodable, delivery.ReasonInvalidHeader, delivery.ReasonTooLarge:
		return true
	}
	return false
}

func has(headers []delivery.Header, key string) bool {
	return slices.ContainsFunc(headers, func(h delivery.Header) bool { return h.Key == key })
}

// put, number, count and time append a value; count nothing for 0, and time nothing for the zero time.
func (e *Encoder) put(text string) { e.memory = append(e.memory, text...) }

func (e *Encoder) number(n int64) { e.memory = strconv.AppendInt(e.memory, n, 10) }

func (e *Encoder) count(n int32) {
	if n > 0 {
		e.number(int64(n))
	}
}

func (e *Encoder) time(t time.Time) {
	if !t.IsZero() {
		e.memory = t.UTC().AppendFormat(e.memory, time.RFC3339Nano)
	}
}

// text is what time appends.
func text(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// HopsAfter returns the number of times the job has been written to a lane once it is at its destination.
func HopsAfter(job *delivery.Job, to delivery.Reroute) int32 {
	return job.Hops + one(to.Kind == delivery.ToLane)
}

func one(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// DueAt returns when the job may be sent again; zero for a dead letter. A job can be moved while an earlier due time still holds (its
// campaign overflows during a back-off), so the later of both counts.
func DueAt(job *delivery.Job, to delivery.Reroute) time.Time {
	switch {
	case to.Kind == delivery.ToDead:
		return time.Time{}
	case to.Due.After(job.Due):
		return to.Due
	}
	return job.Due
}

// NewLife leaves out the headers that describe one record of a job rather than the job, for a job that is published
// again.
func NewLife(headers []delivery.Header) []delivery.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h delivery.Header) bool {
		at := placeOf(h.Key)
		return at >= 0 && fields[at].own
	})
}

// New returns the record that publishes a job. Its content type says whether the payload is JSON.
func New(campaign, id string, payload []byte) delivery.Record {
	kind := contentTypeBinary
	if json.Valid(payload) {
		kind = contentTypeJSON
	}
	return delivery.Record{Value: payload, Headers: []delivery.Header{
		{Key: delivery.HeaderCampaign, Value: []byte(campaign)},
		{Key: delivery.HeaderJobID, Value: []byte(id)},
		{Key: delivery.HeaderContentType, Value: []byte(kind)},
	}}
}

// OneLine converts s to one line of at most limit bytes of valid UTF-8.
func OneLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	s = s[:limit]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
