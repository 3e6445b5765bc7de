package record

import (
	"bytes"
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
	headers headers
	topic   delivery.TopicID // of the last record
	topicID string           // as it is written
}

// Encode is Encoder.Encode for one record.
func Encode(job *delivery.Job, to delivery.Reroute, now time.Time) delivery.Record {
	return new(Encoder).Encode(job, to, now)
}

// Encode returns the record of a job for its destination, written at now. The record shares the job's memory, and is valid until
// the next call.
func (e *Encoder) Encode(job *delivery.Job, to delivery.Reroute, now time.Time) delivery.Record {
	own := e.ownHeaders(job, to, now)
	if unread(job) {
		own = withoutInherited(own, job.Headers)
	}
	all := appendForeign(own, job)
	e.headers.list = all
	return delivery.Record{Time: now, Key: job.Key, Value: job.Payload, Headers: all}
}

// unread reports whether the job's fields were not read from its record, which is therefore kept as it came.
func unread(job *delivery.Job) bool {
	switch job.Defect() {
	case delivery.ReasonUndecodable, delivery.ReasonInvalidHeader, delivery.ReasonTooLarge:
		return true
	}
	return false
}

// ownHeaders returns the headers that pacer writes for the job at its destination.
func (e *Encoder) ownHeaders(job *delivery.Job, to delivery.Reroute, now time.Time) []delivery.Header {
	h := &e.headers
	h.list = slices.Grow(h.list[:0], 18+len(job.Headers))
	h.memory = slices.Grow(h.memory[:0], 288+len(job.Campaign)+len(job.ID)+len(job.Destination)+len(job.Origin.Topic))
	h.text(campaignHeader(job), job.Campaign)
	h.text(delivery.HeaderJobID, job.ID)
	if job.Weight > 1 {
		h.number(delivery.HeaderWeight, job.Weight)
	}
	if job.Priority == delivery.PriorityHigh {
		h.text(delivery.HeaderPriority, "high")
	}
	if !job.FoundDestination() {
		h.text(delivery.HeaderDestination, job.Destination)
	}
	h.time(delivery.HeaderNotBefore, job.NotBefore)
	h.time(delivery.HeaderExpiresAt, job.ExpiresAt)
	h.text(delivery.HeaderContentType, job.ContentType)
	h.text(delivery.HeaderTraceParent, job.TraceParent)

	h.number(delivery.HeaderAttempt, int64(job.Attempt))
	h.count(delivery.HeaderHops, int(HopsAfter(job, to)))
	timerHops := job.TimerHops
	if to.Kind == delivery.ToTimer {
		timerHops++
	}
	h.count(delivery.HeaderTimerHops, int(timerHops))
	if widened(job, to) {
		h.count(delivery.HeaderWidened, 1)
	}
	if job.Origin.Topic != "" {
		h.add(delivery.HeaderOrigin, job.Origin.Append(h.memory))
	}
	if e.topic != job.Origin.TopicID {
		e.topic, e.topicID = job.Origin.TopicID, job.Origin.TopicID.String()
	}
	h.text(delivery.HeaderOriginTopicID, e.topicID)
	h.common(delivery.HeaderEnqueuedAt, now, &h.written)
	h.common(delivery.HeaderFirstRead, job.FirstRead, &h.read)
	h.common(delivery.HeaderPublishedAt, job.Published.Time(), &h.published)
	if to.Kind != delivery.ToDead {
		h.time(delivery.HeaderDue, DueAt(job, to))
	}
	h.text(delivery.HeaderReason, string(to.Reason))
	if s := job.State; s.Valid() {
		h.text(delivery.HeaderStep, s.Step)
		h.text(delivery.HeaderVars, string(s.Vars))
		h.time(delivery.HeaderBegan, s.Began)
		h.count(delivery.HeaderWaits, int(s.Waits))
	}
	provider := job.Call.Provider
	if provider != nil { // a retry may have to use the same id, which the destination may know by now
		h.text(delivery.HeaderProviderMessageID, provider.MessageID)
	}
	if to.Kind == delivery.ToDead {
		h.text(delivery.HeaderDetail, OneLine(to.Detail, MaxDetail))
		if provider != nil {
			h.text(delivery.HeaderProviderCode, provider.Code)
			h.time(delivery.HeaderGoneSince, provider.GoneSince)
		}
		if job.Flaw != nil {
			h.count(HeaderTruncated, int(job.Flaw.Lost))
		}
	}
	return h.list
}

// campaignHeader returns the header for the job's campaign. A value that could not be read and named its campaign itself
// stays what the job is decoded from when it is replayed.
func campaignHeader(job *delivery.Job) string {
	isCampaign := func(h delivery.Header) bool { return h.Key == delivery.HeaderCampaign }
	if unread(job) && !slices.ContainsFunc(job.Headers, isCampaign) {
		return delivery.HeaderEnvelopeCampaign
	}
	return delivery.HeaderCampaign
}

// HopsAfter returns the number of times the job has been written to a lane once it is at its destination.
func HopsAfter(job *delivery.Job, to delivery.Reroute) int32 {
	if to.Kind == delivery.ToLane {
		return job.Hops + 1
	}
	return job.Hops
}

// widened reports whether the job has been moved from one lane to another once it is at its destination.
func widened(job *delivery.Job, to delivery.Reroute) bool {
	return job.Widened || to.Reason == delivery.ReasonWidened
}

// DueAt returns when the job may be sent again. A job can be moved while an earlier due time still holds (its campaign
// overflows during a back-off), so the later of both counts.
func DueAt(job *delivery.Job, to delivery.Reroute) time.Time {
	if to.Due.After(job.Due) {
		return to.Due
	}
	return job.Due
}

// withoutInherited drops those of pacer's headers that a record which could not be decoded carries itself, and guesses
// at its content, so that the dead letter shows what was published.
func withoutInherited(own []delivery.Header, original []delivery.Header) []delivery.Header {
	return slices.DeleteFunc(own, func(h delivery.Header) bool {
		if bookkeeping(h.Key) {
			return false
		}
		if h.Key == delivery.HeaderContentType || h.Key == delivery.HeaderTraceParent {
			return true
		}
		return slices.ContainsFunc(original, func(o delivery.Header) bool { return o.Key == h.Key })
	})
}

// appendForeign adds the record's other headers, in their order, except those that pacer writes itself.
func appendForeign(own []delivery.Header, job *delivery.Job) []delivery.Header {
	all := own
	for _, f := range job.Headers {
		if rewritten(f.Key, unread(job)) {
			continue
		}
		if slices.ContainsFunc(own, func(o delivery.Header) bool { return o.Key == f.Key }) {
			continue
		}
		all = append(all, f)
	}
	return all
}

// Size estimates how many bytes the job's record takes in a batch: the producer's parts exactly, pacer's own headers
// and the framing generously.
func Size(job *delivery.Job) int {
	n := 568 + len(job.ID) + len(job.Campaign) + len(job.Destination) + len(job.Origin.Topic) + len(job.Payload) + len(job.Key)
	for _, h := range job.Headers {
		n += len(h.Key) + len(h.Value) + 8
	}
	if s := job.State; s != nil {
		n += 128 + len(s.Step) + len(s.Vars)
	}
	if p := job.Call.Provider; p != nil {
		n += 128 + len(p.Code) + len(p.MessageID)
	}
	return n
}

// NewLife leaves out the headers that describe one record of a job rather than the job, for a job that is published
// again.
func NewLife(headers []delivery.Header) []delivery.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h delivery.Header) bool { return bookkeeping(h.Key) })
}

// Header values of the content types, which need no memory for each record. They are never changed.
var (
	valueJSON   = []byte(contentTypeJSON)
	valueBinary = []byte(contentTypeBinary)
)

// New returns the record that publishes a job. Its content type says whether the payload is JSON.
func New(campaign, id string, payload []byte) delivery.Record {
	kind := valueBinary
	if json.Valid(payload) {
		kind = valueJSON
	}
	return delivery.Record{Value: payload, Headers: []delivery.Header{
		{Key: delivery.HeaderCampaign, Value: []byte(campaign)},
		{Key: delivery.HeaderJobID, Value: []byte(id)},
		{Key: delivery.HeaderContentType, Value: kind},
	}}
}

// headers builds a list of record headers, whose values share memory; empty values are left out.
type headers struct {
	list   []delivery.Header
	memory []byte

	written, read, published stamp // which many records have in common
}

// stamp is a time, and how it is written.
type stamp struct {
	at   time.Time
	text string
}

// add adds a header whose value was appended to the memory.
func (h *headers) add(key string, memory []byte) {
	from := len(h.memory)
	h.memory = memory
	h.list = append(h.list, delivery.Header{Key: key, Value: memory[from:len(memory):len(memory)]})
}

func (h *headers) text(key, value string) {
	if value != "" {
		h.add(key, append(h.memory, value...))
	}
}

func (h *headers) number(key string, n int64) { h.add(key, strconv.AppendInt(h.memory, n, 10)) }

func (h *headers) count(key string, n int) {
	if n > 0 {
		h.number(key, int64(n))
	}
}

func (h *headers) time(key string, t time.Time) {
	if !t.IsZero() {
		h.add(key, t.UTC().AppendFormat(h.memory, time.RFC3339Nano))
	}
}

// common is time for one that the record before is likely to have as well.
func (h *headers) common(key string, t time.Time, last *stamp) {
	if t != last.at {
		*last = stamp{at: t}
		if !t.IsZero() {
			last.text = t.UTC().Format(time.RFC3339Nano)
		}
	}
	h.text(key, last.text)
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

// FormatOrigin formats an origin as <topic>/<partition>/<offset>, and an unknown one as "". The result is also the id
// of a job without an id from its producer.
func FormatOrigin(o delivery.Origin) string { return o.String() }

// ParseOrigin parses the output of FormatOrigin.
func ParseOrigin(s string) (delivery.Origin, bool) { return new(Decoder).origin([]byte(s)) }

func (d *Decoder) origin(s []byte) (delivery.Origin, bool) {
	rest, offset, ok1 := cutLast(s)
	topic, partition, ok2 := cutLast(rest)
	o, err1 := strconv.ParseInt(string(offset), 10, 64)
	p, err2 := strconv.ParseInt(string(partition), 10, 32)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || o < 0 || p < 0 || len(topic) == 0 {
		return delivery.Origin{}, false
	}
	return delivery.Origin{Topic: d.name(topic), Partition: int(p), Offset: o}, true
}

func cutLast(s []byte) (before, after []byte, ok bool) {
	i := bytes.LastIndexByte(s, '/')
	if i < 0 {
		return nil, nil, false
	}
	return s[:i], s[i+1:], true
}
