package record

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Overhead is the memory of a job besides its bytes, in bytes.
const Overhead = 512

// Content types of jobs that do not specify one.
const (
	contentTypeJSON   = "application/json"
	contentTypeBinary = "application/octet-stream"
)

// size returns the memory cost of the record, in bytes.
func size(r *delivery.Record) int64 {
	n := len(r.Key) + len(r.Value) + Overhead
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// Limits bound what a job may ask for.
type Limits struct {
	MaxWeight    int64
	MaxNotBefore time.Duration // between the first read and the time before which it must not be sent; 0: unlimited
}

// Decoder decodes the records of one partition. It remembers the names that they have in common, so that their jobs share
// them, and what the last ones meant by what those that were written together have in common. It is not safe for concurrent use;
// the zero value is ready.
type Decoder struct {
	names                     *[maxNames]string // each at a place of its hash
	written, first, published last[time.Time]
	topicID                   last[delivery.TopicID]
}

// last is the last value of a header, and what it means; that of none is the zero value.
type last[T any] struct {
	text string
	is   T
}

// parse is parse(value).
func (l *last[T]) parse(value []byte, parse func([]byte) T) T {
	if len(value) > delivery.MaxIDLength {
		return parse(value)
	}
	if string(value) != l.text {
		l.text, l.is = string(value), parse(value)
	}
	return l.is
}

// maxNames bounds the names that are remembered.
const maxNames = 256

var seed = maphash.MakeSeed()

// name returns the string of a name that other records are likely to have too.
func (d *Decoder) name(b []byte) string {
	if len(b) > delivery.MaxIDLength {
		return string(b)
	}
	if d.names == nil {
		d.names = new([maxNames]string)
	}
	at := &d.names[maphash.Bytes(seed, b)%maxNames]
	if *at != string(b) {
		*at = string(b)
	}
	return *at
}

// Decode is Decoder.Decode for one record.
func Decode(r *delivery.Record, from delivery.Place, limits Limits, now time.Time) *delivery.Job {
	return new(Decoder).Decode(r, from, limits, now)
}

// Decode turns a record into a job, which has memory of its own. It never fails: a record that cannot be delivered
// becomes a job with a Flaw and with the payload and headers of the record, so that the dead letter is complete.
// Headers written by pacer count only in topics that pacer owns (lanes and timers); in ingress any producer may have
// written them. Names that are not known are a flaw where a producer wrote the record.
func (d *Decoder) Decode(r *delivery.Record, from delivery.Place, limits Limits, now time.Time) *delivery.Job {
	var h scanned
	h.scan(r.Headers)
	j := &delivery.Job{
		Weight: 1, Flaw: r.Flaw,
		History: delivery.History{
			Origin: delivery.Origin{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, TopicID: r.TopicID}, FirstRead: now,
		},
		Reading: delivery.Reading{
			From: from, Published: delivery.ShortStampOf(r.Time), Offset: r.Offset, Size: size(r), ReadAt: now,
		},
	}
	moved := false
	if from != delivery.FromIngress {
		moved = d.applyHistory(j, &h, r.Time)
		if h.format != nil && string(h.format) != "1" {
			invalid(j, delivery.HeaderFormat, "must be 1: pacer reads no other format of its records")
		}
	}
	if !moved {
		h.check(j)
	}
	switch {
	case h.campaign != nil:
		d.decodeHeaders(j, &h, limits)
	case r.Flaw == nil:
		d.decodeEnvelope(j, r.Value, limits)
	default:
		j.ContentType = contentTypeBinary
	}
	if j.ID == "" {
		j.ID = FormatOrigin(j.Origin)
	}
	j.TraceParent = traceParent(h.traceParent)
	keep(j, r)
	return j
}

// keep copies what the job has of its record, into one piece of memory: its key, its headers that stay on the record when it is
// written again, and its value, unless it was an envelope.
func keep(j *delivery.Job, r *delivery.Record) {
	unread, headers, n := unread(j), 0, len(r.Key)
	for _, h := range r.Headers {
		if !rewritten(h.Key, unread) {
			headers++
			n += len(h.Value)
		}
	}
	if j.Payload == nil {
		n += len(r.Value)
	}
	memory := make([]byte, 0, n)
	copied := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(memory)
		memory = append(memory, b...)
		return memory[from:len(memory):len(memory)]
	}
	if j.Payload == nil {
		j.Payload = copied(r.Value)
	}
	j.Key = copied(r.Key)
	if headers == 0 {
		return
	}
	j.Headers = make([]delivery.Header, 0, headers)
	for _, h := range r.Headers {
		if !rewritten(h.Key, unread) {
			j.Headers = append(j.Headers, delivery.Header{Key: h.Key, Value: copied(h.Value)})
		}
	}
}

// decodeHeaders sets the job's fields from headers.
func (d *Decoder) decodeHeaders(j *delivery.Job, h *scanned, limits Limits) {
	j.ContentType = contentTypeBinary
	d.setCampaign(j, delivery.HeaderCampaign, h.campaign)
	id, idHeader := h.jobID, delivery.HeaderJobID
	if id == nil {
		id, idHeader = h.cloudEvent, delivery.HeaderCloudEvent
	}
	if id != nil {
		if j.ID = string(id); !delivery.ValidID(j.ID) {
			j.ID = ""
			invalid(j, idHeader, idRule)
		}
	}
	if h.contentType != nil {
		if j.ContentType = contentType(h.contentType); !printable(j.ContentType) {
			j.ContentType = contentTypeBinary
			invalid(j, delivery.HeaderContentType, "must be printable ASCII")
		}
	}
	d.setDestination(j, delivery.HeaderDestination, h.destination)
	setPriority(j, delivery.HeaderPriority, h.priority)
	setNotBefore(j, delivery.HeaderNotBefore, h.notBefore, limits)
	setTime(j, delivery.HeaderExpiresAt, h.expiresAt, &j.ExpiresAt)
	setWeight(j, delivery.HeaderWeight, h.weight, limits)
}

// setCampaign leaves the campaign empty if the value cannot name one.
func (d *Decoder) setCampaign(j *delivery.Job, name string, value []byte) {
	switch id := d.name(value); {
	case delivery.ValidCampaign(id):
		j.Campaign = id
	case id == delivery.UnknownCampaign:
		invalid(j, name, "must not be "+id+", which stands for jobs without a campaign")
	default:
		invalid(j, name, idRule)
	}
}

// setDestination leaves the destination empty if the value cannot name one.
func (d *Decoder) setDestination(j *delivery.Job, name string, value []byte) {
	if value == nil {
		return
	}
	if j.Destination = d.name(value); !delivery.ValidID(j.Destination) {
		j.Destination = ""
		invalid(j, name, idRule)
	}
}

// contentType allocates no memory for the common types.
func contentType(value []byte) string {
	switch string(value) {
	case contentTypeJSON:
		return contentTypeJSON
	case contentTypeBinary:
		return contentTypeBinary
	}
	return string(value)
}

const idRule = "must be 1 to 256 printable ASCII characters without spaces"

// invalid records the first defect.
func invalid(j *delivery.Job, name, rule string) {
	if j.Flaw == nil {
		j.Flaw = &delivery.Flaw{Defect: delivery.ReasonInvalidHeader, Detail: name + " " + rule}
	}
}

// setWeight comes last: a job that is only too heavy is otherwise readable, and is written again from its fields.
func setWeight(j *delivery.Job, name string, value []byte, limits Limits) {
	maxWeight := limits.MaxWeight
	if value == nil {
		return
	}
	w, err := strconv.ParseInt(string(value), 10, 64)
	switch {
	case err != nil || w < 1:
		invalid(j, name, fmt.Sprintf("must be an integer from 1 to %d", maxWeight))
	case w > maxWeight && j.Flaw == nil:
		j.Weight = w
		j.Flaw = &delivery.Flaw{Defect: delivery.ReasonOverweight, Detail: fmt.Sprintf("%s %d is above max_weight %d", name, w, maxWeight)}
	default:
		j.Weight = w
	}
}

func setPriority(j *delivery.Job, name string, value []byte) {
	switch string(value) {
	case "high":
		j.Priority = delivery.PriorityHigh
	case "normal":
	default:
		if value != nil {
			invalid(j, name, "must be high or normal")
		}
	}
}

// setNotBefore is setTime with a limit, so that no job circulates in the timers for years.
func setNotBefore(j *delivery.Job, name string, value []byte, limits Limits) {
	if value == nil {
		return
	}
	setTime(j, name, value, &j.NotBefore)
	if limits.MaxNotBefore > 0 && j.NotBefore.Sub(j.FirstRead) > limits.MaxNotBefore {
		invalid(j, name, fmt.Sprintf("%s is further ahead than max_not_before (%s)", value, notation.FormatSpan(limits.MaxNotBefore)))
	}
}

func setTime(j *delivery.Job, name string, value []byte, t *time.Time) {
	if value == nil {
		return
	}
	parsed, err := time.Parse(time.RFC3339, string(value))
	if err != nil {
		invalid(j, name, "must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z")
		return
	}
	*t = parsed
}

// applyHistory reads the headers that pacer wrote when it moved the job. A header that is missing or unreadable,
// because another program wrote the record, counts as zero. moved reports whether pacer wrote the record.
func (d *Decoder) applyHistory(j *delivery.Job, h *scanned, written time.Time) (moved bool) {
	j.Attempt, j.Hops, j.TimerHops = int(count(h.attempt)), count(h.hops), count(h.timerHops)
	o, moved := d.origin(h.origin)
	if moved {
		j.Origin = o
		j.Origin.TopicID = d.topicID.parse(h.originTopicID, func(b []byte) delivery.TopicID { return delivery.ParseTopicID(string(b)) })
	}
	if j.EnqueuedAt = delivery.StampOf(d.written.parse(h.enqueuedAt, instant)); j.EnqueuedAt == 0 {
		j.EnqueuedAt = delivery.StampOf(written)
	}
	switch first := d.first.parse(h.firstRead, instant); {
	case !first.IsZero():
		j.FirstRead = first
	case written.Unix() > 0 && written.Before(j.FirstRead): // by a producer, into a lane; the same at every read
		j.FirstRead = written
	}
	if moved {
		j.Published = delivery.ShortStampOf(d.published.parse(h.publishedAt, instant))
		if len(h.messageID) > 0 && len(h.messageID) <= delivery.MaxProviderText {
			j.Call.Provider = &delivery.Provider{MessageID: string(h.messageID)}
		}
	}
	j.Due = instant(h.due)
	j.Reason, j.Widened = d.name(h.reason), count(h.widened) > 0
	if len(h.step) > 0 {
		j.State = d.state(h)
	}
	return moved
}

// state returns how far the job's request has come; nil if its headers are not those of a state.
func (d *Decoder) state(h *scanned) *delivery.State {
	s := &delivery.State{Step: d.name(h.step), Began: instant(h.began), Waits: count(h.waits)}
	if len(h.vars) > 0 {
		s.Vars = bytes.Clone(h.vars)
	}
	if !s.Valid() {
		return nil
	}
	return s
}

func count(value []byte) int32 {
	if len(value) == 0 { // most records do not have it, and an error costs more than a number
		return 0
	}
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

func instant(value []byte) time.Time {
	if len(value) == 0 { // as in count
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, string(value))
	if err != nil {
		return time.Time{}
	}
	return t
}

// printable reports whether a sink can send s as a header.
func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 256
}
