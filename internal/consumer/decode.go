package consumer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// recordOverhead is what a job costs in memory besides its bytes.
const recordOverhead = 512

// Content types of jobs that state none.
const (
	contentTypeJSON   = "application/json"
	contentTypeBinary = "application/octet-stream"
)

// record is one Kafka record with its bytes copied out of the fetch buffers.
type record struct {
	topic     string
	partition int
	offset    int64
	time      time.Time
	key       []byte
	value     []byte
	headers   []kafka.Header
}

// size is what the record costs in memory.
func (r *record) size() int64 {
	n := len(r.key) + len(r.value) + recordOverhead
	for _, h := range r.headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// decode turns a record into a job. It never fails: what cannot be delivered becomes a job with a Defect, whose payload
// and headers are those of the record, so that the dead letter is whole. Headers written by pacer count only in
// topics that pacer owns (lanes and timers); in ingress anybody could have written them.
func decode(r *record, from delivery.Place, maxWeight int64, now time.Time) *delivery.Job {
	var h scanned
	h.scan(r.headers)
	j := &delivery.Job{
		Weight: 1, Payload: r.value, Key: r.key,
		Origin: delivery.Origin{Topic: r.topic, Partition: r.partition, Offset: r.offset},
		From:   from, Offset: r.offset, Size: r.size(), ReadAt: now, FirstRead: now,
	}
	if from != delivery.FromIngress {
		applyHistory(j, &h, r.time)
	}
	if h.campaign == nil {
		decodeEnvelope(j, r.value, maxWeight)
	} else {
		decodeHeaders(j, &h, maxWeight)
	}
	if j.ID == "" {
		j.ID = originID(j.Origin)
	}
	j.TraceParent = traceParent(h.traceParent)
	j.Headers = keptHeaders(r.headers, j.Defect)
	return j
}

// scanned holds the last value of every header that means something; nil where the record has none.
type scanned struct {
	campaign, jobID, cloudEvent, weight, priority  []byte
	notBefore, expiresAt, contentType, traceParent []byte

	attempt, hops, timerHops, origin   []byte
	enqueuedAt, due, firstRead, reason []byte
}

// field is where the header's value goes; nil for headers that mean nothing to pacer.
func (s *scanned) field(key string) *[]byte {
	switch key {
	case delivery.HeaderCampaign:
		return &s.campaign
	case delivery.HeaderJobID:
		return &s.jobID
	case delivery.HeaderCloudEvent:
		return &s.cloudEvent
	case delivery.HeaderWeight:
		return &s.weight
	case delivery.HeaderPriority:
		return &s.priority
	case delivery.HeaderNotBefore:
		return &s.notBefore
	case delivery.HeaderExpiresAt:
		return &s.expiresAt
	case delivery.HeaderContentType:
		return &s.contentType
	case delivery.HeaderTraceParent:
		return &s.traceParent
	}
	return s.written(key)
}

// written is where the value of a header written by pacer goes; nil for any other.
func (s *scanned) written(key string) *[]byte {
	switch key {
	case delivery.HeaderAttempt:
		return &s.attempt
	case delivery.HeaderHops:
		return &s.hops
	case delivery.HeaderTimerHops:
		return &s.timerHops
	case delivery.HeaderOrigin:
		return &s.origin
	case delivery.HeaderEnqueuedAt:
		return &s.enqueuedAt
	case delivery.HeaderDue:
		return &s.due
	case delivery.HeaderFirstRead:
		return &s.firstRead
	case delivery.HeaderReason:
		return &s.reason
	}
	return nil
}

// scan finds the headers that mean something; of duplicates the last wins, as in Kafka's own lastHeader.
func (s *scanned) scan(headers []kafka.Header) {
	for _, h := range headers {
		if field := s.field(h.Key); field != nil {
			*field = h.Value
			if h.Value == nil {
				*field = []byte{} // present, with a null value
			}
		}
	}
}

// keptHeaders are the headers that stay on the record when it is written again: all but those that pacer writes
// itself, from the fields of the job. Of a record that could not be read, what the producer wrote is kept as it is.
func keptHeaders(headers []kafka.Header, defect delivery.Reason) []delivery.Header {
	unread := defect == delivery.ReasonUndecodable || defect == delivery.ReasonInvalidHeader
	var kept []delivery.Header
	var s scanned
	for _, h := range headers {
		if h.Key == delivery.HeaderDetail || s.written(h.Key) != nil {
			continue
		}
		if strings.HasPrefix(h.Key, delivery.HeaderPrefix) && s.field(h.Key) != nil && !unread {
			continue
		}
		kept = append(kept, interned(h))
	}
	return kept
}

// The content types that cost a job no memory of its own, as values of headers. Nobody writes to them.
var (
	valueJSON   = []byte(contentTypeJSON)
	valueBinary = []byte(contentTypeBinary)
)

// interned is the header without memory of its own where it is one that nearly every record has.
func interned(h kafka.Header) delivery.Header {
	if h.Key != delivery.HeaderContentType {
		return delivery.Header{Key: h.Key, Value: h.Value}
	}
	kept := delivery.Header{Key: delivery.HeaderContentType, Value: h.Value}
	switch string(h.Value) {
	case contentTypeJSON:
		kept.Value = valueJSON
	case contentTypeBinary:
		kept.Value = valueBinary
	}
	return kept
}

// decodeHeaders reads the job from headers.
func decodeHeaders(j *delivery.Job, h *scanned, maxWeight int64) {
	j.ContentType = contentTypeBinary
	if j.Campaign = string(h.campaign); !delivery.ValidID(j.Campaign) {
		j.Campaign = ""
		invalid(j, delivery.HeaderCampaign, idRule)
	}
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
	setPriority(j, delivery.HeaderPriority, h.priority)
	setTime(j, delivery.HeaderNotBefore, h.notBefore, &j.NotBefore)
	setTime(j, delivery.HeaderExpiresAt, h.expiresAt, &j.ExpiresAt)
	setWeight(j, delivery.HeaderWeight, h.weight, maxWeight)
}

// contentType costs no memory of its own for the common ones.
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

// invalid notes the first thing found wrong.
func invalid(j *delivery.Job, name, rule string) {
	if j.Defect == "" {
		j.Defect, j.DefectDetail = delivery.ReasonInvalidHeader, name+" "+rule
	}
}

// setWeight comes last: a job that is only too heavy is otherwise readable, and written again from its fields.
func setWeight(j *delivery.Job, name string, value []byte, maxWeight int64) {
	if value == nil {
		return
	}
	w, err := strconv.ParseInt(string(value), 10, 64)
	switch {
	case err != nil || w < 1:
		invalid(j, name, fmt.Sprintf("must be an integer from 1 to %d", maxWeight))
	case w > maxWeight && j.Defect == "":
		j.Weight = w
		j.Defect = delivery.ReasonOverweight
		j.DefectDetail = fmt.Sprintf("%s %d is above max_weight %d", name, w, maxWeight)
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

// applyHistory reads what pacer wrote when it moved the job. What is missing or unreadable, because somebody else wrote
// into the topic, counts as nothing done so far.
func applyHistory(j *delivery.Job, h *scanned, written time.Time) {
	j.Attempt, j.Hops, j.TimerHops = count(h.attempt), count(h.hops), count(h.timerHops)
	if o, ok := parseOrigin(string(h.origin)); ok {
		j.Origin = o
	}
	if j.EnqueuedAt = instant(h.enqueuedAt); j.EnqueuedAt.IsZero() {
		j.EnqueuedAt = written
	}
	switch first := instant(h.firstRead); {
	case !first.IsZero():
		j.FirstRead = first
	case written.Unix() > 0 && written.Before(j.FirstRead): // by a producer, into a lane; the same each time it is read
		j.FirstRead = written
	}
	j.Due = instant(h.due)
	j.Reason = string(h.reason)
}

func count(value []byte) int {
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

func instant(value []byte) time.Time {
	t, err := time.Parse(time.RFC3339Nano, string(value))
	if err != nil {
		return time.Time{}
	}
	return t
}

// originID is the id of a job whose producer gave it none, and the form in which an origin is written.
func originID(o delivery.Origin) string {
	return o.Topic + "/" + strconv.Itoa(o.Partition) + "/" + strconv.FormatInt(o.Offset, 10)
}

// parseOrigin reads what originID wrote.
func parseOrigin(s string) (delivery.Origin, bool) {
	rest, offset, ok1 := cutLast(s)
	topic, partition, ok2 := cutLast(rest)
	o, err1 := strconv.ParseInt(offset, 10, 64)
	p, err2 := strconv.ParseInt(partition, 10, 32)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || o < 0 || p < 0 || topic == "" {
		return delivery.Origin{}, false
	}
	return delivery.Origin{Topic: topic, Partition: int(p), Offset: o}, true
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// printable tells whether a sink can send s as a header.
func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 256
}

// traceParentLength is that of version 00 of W3C Trace Context; later versions may only be longer.
const traceParentLength = 55

// traceParent passes on what can be one. As W3C Trace Context says, an unusable one is ignored.
func traceParent(value []byte) string {
	s := string(value)
	if len(s) < traceParentLength || !printable(s) || strings.Count(s[:traceParentLength], "-") != 3 {
		return ""
	}
	return s
}
