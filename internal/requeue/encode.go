package requeue

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// HeaderTruncated marks a dead letter whose payload was cut because the broker takes no record so large; its
// value is the length of the whole payload in bytes. Such a letter cannot be replayed.
const HeaderTruncated = "pacer-truncated"

// maxDetail bounds the detail of a dead letter in bytes.
const maxDetail = 500

// What an oversize dead letter keeps. Foreign headers can be what makes a record too large, so they are bounded too.
const (
	keptPayload = 64 << 10
	keptHeaders = 16 << 10
	keptKey     = 4 << 10
)

// cut says how much of a job a record keeps.
type cut uint8

const (
	cutNothing cut = iota
	cutPayload     // the first 64 KiB of the payload, and the headers that fit
	cutAll         // the origin and the reason only
)

// bookkeeping are the headers that describe one record of a job rather than the job. They are written anew every
// time and never inherited.
var bookkeeping = []string{
	delivery.HeaderAttempt, delivery.HeaderHops, delivery.HeaderTimerHops, delivery.HeaderOrigin, delivery.HeaderEnqueuedAt,
	delivery.HeaderDue, delivery.HeaderFirstRead, delivery.HeaderReason, delivery.HeaderDetail, HeaderTruncated,
}

// identity are pacer's headers that describe the job itself.
var identity = []string{
	delivery.HeaderCampaign, delivery.HeaderJobID, delivery.HeaderWeight, delivery.HeaderPriority,
	delivery.HeaderNotBefore, delivery.HeaderExpiresAt,
}

// encode makes the record of a job for its destination, written at now. The record shares the job's memory.
func encode(it *item, now time.Time) kafka.Record {
	job := it.job
	own := ownHeaders(it, now)
	if unread(job) {
		own = withoutInherited(own, job.Headers)
	}
	r := kafka.Record{
		Time:    now,
		Key:     kafka.NewBytes(job.Key),
		Value:   kafka.NewBytes(job.Payload),
		Headers: appendForeign(own, job, it.cut),
	}
	if it.cut != cutNothing {
		r.Value = kafka.NewBytes(job.Payload[:min(len(job.Payload), keptPayload)])
		if len(job.Key) > keptKey {
			r.Key = nil
		}
	}
	if it.cut == cutAll {
		r.Key, r.Value = nil, kafka.NewBytes([]byte{})
	}
	return r
}

// unread tells whether the job's fields were not read from its record, which is therefore kept as it came.
func unread(job *delivery.Job) bool {
	return job.Defect == delivery.ReasonUndecodable || job.Defect == delivery.ReasonInvalidHeader
}

// ownHeaders are the headers that pacer writes for the job at its destination.
func ownHeaders(it *item, now time.Time) []kafka.Header {
	job, to := it.job, it.to
	h := make(headers, 0, 16+len(job.Headers))
	h.text(delivery.HeaderCampaign, job.Campaign)
	h.text(delivery.HeaderJobID, job.ID)
	if job.Weight > 1 {
		h.text(delivery.HeaderWeight, strconv.FormatInt(job.Weight, 10))
	}
	if job.Priority == delivery.PriorityHigh {
		h.text(delivery.HeaderPriority, "high")
	}
	h.time(delivery.HeaderNotBefore, job.NotBefore)
	h.time(delivery.HeaderExpiresAt, job.ExpiresAt)
	h.text(delivery.HeaderContentType, job.ContentType)
	h.text(delivery.HeaderTraceParent, job.TraceParent)

	h.text(delivery.HeaderAttempt, strconv.Itoa(job.Attempt))
	h.count(delivery.HeaderHops, hopsAfter(it))
	timerHops := job.TimerHops
	if to.Kind == delivery.ToTimer {
		timerHops++
	}
	h.count(delivery.HeaderTimerHops, timerHops)
	h.text(delivery.HeaderOrigin, originText(job.Origin))
	h.time(delivery.HeaderEnqueuedAt, now)
	h.time(delivery.HeaderFirstRead, job.FirstRead)
	if to.Kind != delivery.ToDead {
		h.time(delivery.HeaderDue, dueAt(job, to))
	}
	h.text(delivery.HeaderReason, string(to.Reason))
	if to.Kind == delivery.ToDead {
		h.text(delivery.HeaderDetail, oneLine(to.Detail, maxDetail))
	}
	if it.cut != cutNothing {
		h.text(HeaderTruncated, strconv.Itoa(len(job.Payload)))
	}
	return h
}

// hopsAfter is the number of lane writes the job has behind it once it is at its destination.
func hopsAfter(it *item) int {
	if it.to.Kind == delivery.ToLane {
		return it.job.Hops + 1
	}
	return it.job.Hops
}

// dueAt is when the job may be sent again. A job can be moved while an earlier promise still stands (its
// campaign overflows during a back-off), so the later of both holds.
func dueAt(job *delivery.Job, to delivery.Destination) time.Time {
	if to.Due.After(job.Due) {
		return to.Due
	}
	return job.Due
}

// withoutInherited drops those of pacer's own headers that a record which could not be decoded carries itself, and
// guesses at its content: the person who reads the dead letter sees what was published.
func withoutInherited(own []kafka.Header, original []delivery.Header) []kafka.Header {
	return slices.DeleteFunc(own, func(h kafka.Header) bool {
		if slices.Contains(bookkeeping, h.Key) {
			return false
		}
		if h.Key == delivery.HeaderContentType || h.Key == delivery.HeaderTraceParent {
			return true
		}
		return slices.ContainsFunc(original, func(o delivery.Header) bool { return o.Key == h.Key })
	})
}

// appendForeign adds the record's other headers, in their order, except those that pacer writes itself.
func appendForeign(own []kafka.Header, job *delivery.Job, c cut) []kafka.Header {
	if c == cutAll {
		return own
	}
	all, room := own, keptHeaders
	for _, f := range job.Headers {
		if slices.Contains(bookkeeping, f.Key) || !unread(job) && slices.Contains(identity, f.Key) {
			continue
		}
		if slices.ContainsFunc(own, func(o kafka.Header) bool { return o.Key == f.Key }) {
			continue
		}
		if room -= len(f.Key) + len(f.Value); c != cutNothing && room < 0 {
			break
		}
		all = append(all, kafka.Header{Key: f.Key, Value: f.Value})
	}
	return all
}

// recordSize estimates how many bytes the job's record takes in a batch: the foreign parts exactly, pacer's own
// headers and the framing generously.
func recordSize(job *delivery.Job) int {
	n := 448 + len(job.ID) + len(job.Campaign) + len(job.Origin.Topic) + len(job.Payload) + len(job.Key)
	for _, h := range job.Headers {
		n += len(h.Key) + len(h.Value) + 8
	}
	return n
}

// headers builds a list of record headers; empty values are left out.
type headers []kafka.Header

func (h *headers) text(key, value string) {
	if value != "" {
		*h = append(*h, kafka.Header{Key: key, Value: []byte(value)})
	}
}

func (h *headers) count(key string, n int) {
	if n > 0 {
		h.text(key, strconv.Itoa(n))
	}
}

func (h *headers) time(key string, t time.Time) {
	if !t.IsZero() {
		h.text(key, t.UTC().Format(time.RFC3339Nano))
	}
}

func originText(o delivery.Origin) string {
	if o.Topic == "" {
		return ""
	}
	return o.Topic + "/" + strconv.Itoa(o.Partition) + "/" + strconv.FormatInt(o.Offset, 10)
}

// parseOrigin reads what originText wrote. Topic names hold no slash.
func parseOrigin(s string) (delivery.Origin, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" {
		return delivery.Origin{}, false
	}
	partition, err := strconv.Atoi(parts[1])
	if err != nil || partition < 0 {
		return delivery.Origin{}, false
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || offset < 0 {
		return delivery.Origin{}, false
	}
	return delivery.Origin{Topic: parts[0], Partition: partition, Offset: offset}, true
}

// oneLine makes s fit for one line of at most limit bytes of valid UTF-8.
func oneLine(s string, limit int) string {
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
