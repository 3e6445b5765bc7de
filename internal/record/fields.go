package record

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// field is a header of a job's record. Decode, Encode, envelopes and error messages all go by the table of fields.
type field struct {
	header string
	key    string // in an envelope; "" if envelopes do not have it
	raw    bool   // in an envelope it is no string
	own    bool   // it describes one record of the job: pacer writes it anew each time, and reads it only from its own topics
	kept   bool   // it stays on the record as the producer wrote it
	dead   bool   // only dead letters have it

	read  func(d *Decoder) // sets the job's field from d.value; nil: Decode does, or no one
	write func(e *Encoder) // appends to e.memory, or leaves the header out
}

// fields is the table, in the order of reading and writing.
var fields = [...]field{
	{header: delivery.HeaderCampaign, key: "campaign", read: (*Decoder).readCampaign, write: func(e *Encoder) {
		if !e.unread {
			e.put(e.job.Campaign)
		}
	}},
	{header: delivery.HeaderJobID, key: "id", read: (*Decoder).readID, write: func(e *Encoder) { e.put(e.job.ID) }},
	{header: delivery.HeaderCloudEvent, kept: true, read: (*Decoder).readID},
	{header: delivery.HeaderContentType, read: (*Decoder).readContentType, write: func(e *Encoder) { e.put(e.job.ContentType) }},
	{header: delivery.HeaderTraceParent, kept: true, write: func(e *Encoder) { e.put(e.job.TraceParent) }},
	{header: delivery.HeaderDestination, key: "destination", read: (*Decoder).readDestination, write: func(e *Encoder) {
		if !e.job.FoundDestination() {
			e.put(e.job.Destination)
		}
	}},
	{header: delivery.HeaderPriority, key: "priority", read: (*Decoder).readPriority, write: func(e *Encoder) {
		e.put([...]string{delivery.PriorityHigh: "high"}[e.job.Priority])
	}},
	{header: delivery.HeaderTimeZone, key: "time_zone", read: (*Decoder).readZone, write: func(e *Encoder) {
		if e.job.Zone != nil {
			e.put(e.job.Zone.String())
		}
	}},
	{header: delivery.HeaderNotBefore, key: "not_before", read: (*Decoder).readNotBefore, write: func(e *Encoder) {
		if !isLocal(e.job) {
			e.time(e.job.NotBefore)
		}
	}},
	{header: delivery.HeaderLocal, key: "not_before_local", read: (*Decoder).readLocal, write: func(e *Encoder) {
		if isLocal(e.job) {
			e.memory = e.job.NotBefore.AppendFormat(e.memory, "2006-01-02T15:04:05.999999999")
		}
	}},
	{header: delivery.HeaderExpiresAt, key: "expires_at", read: (*Decoder).readExpiresAt, write: func(e *Encoder) { e.time(e.job.ExpiresAt) }},
	// The weight is read last: a job that is only too heavy is otherwise readable, and is written again from its fields.
	{header: delivery.HeaderWeight, key: "weight", raw: true, read: (*Decoder).readWeight, write: func(e *Encoder) {
		if e.job.Weight > 1 {
			e.number(e.job.Weight)
		}
	}},

	{header: delivery.HeaderFormat, own: true, read: (*Decoder).readFormat},
	{header: delivery.HeaderOrigin, own: true, write: func(e *Encoder) { e.memory = e.job.Origin.Append(e.memory) }},
	{header: delivery.HeaderOriginTopicID, own: true,
		read:  func(d *Decoder) { d.job.Origin.TopicID = lastOf(d, &d.topicID, delivery.ParseTopicID) },
		write: func(e *Encoder) { e.put(e.topicID.of(e.job.Origin.TopicID, delivery.TopicID.String)) }},
	{header: delivery.HeaderAttempt, own: true,
		read: func(d *Decoder) { d.job.Attempt = int(d.count()) }, write: func(e *Encoder) { e.number(int64(e.job.Attempt)) }},
	{header: delivery.HeaderHops, own: true,
		read: func(d *Decoder) { d.job.Hops = d.count() }, write: func(e *Encoder) { e.count(HopsAfter(e.job, e.to)) }},
	{header: delivery.HeaderTimerHops, own: true,
		read:  func(d *Decoder) { d.job.TimerHops = d.count() },
		write: func(e *Encoder) { e.count(e.job.TimerHops + one(e.to.Kind == delivery.ToTimer)) }},
	{header: delivery.HeaderEnqueuedAt, own: true,
		read:  func(d *Decoder) { d.job.EnqueuedAt = delivery.StampOf(lastOf(d, &d.written, instant)) },
		write: func(e *Encoder) { e.put(e.written.of(e.now, text)) }},
	{header: delivery.HeaderFirstRead, own: true,
		read:  func(d *Decoder) { d.job.FirstRead = cmp.Or(lastOf(d, &d.first, instant), d.job.FirstRead) },
		write: func(e *Encoder) { e.put(e.first.of(e.job.FirstRead, text)) }},
	{header: delivery.HeaderPublishedAt, own: true,
		read:  func(d *Decoder) { d.job.Published = delivery.ShortStampOf(lastOf(d, &d.published, instant)) },
		write: func(e *Encoder) { e.put(e.published.of(e.job.Published.Time(), text)) }},
	{header: delivery.HeaderDue, own: true,
		read: func(d *Decoder) { d.job.Due = instant(string(d.value)) }, write: func(e *Encoder) { e.time(DueAt(e.job, e.to)) }},
	{header: delivery.HeaderReason, own: true,
		read: func(d *Decoder) { d.job.Reason = d.shared() }, write: func(e *Encoder) { e.put(string(e.to.Reason)) }},
	{header: delivery.HeaderStep, own: true,
		read: func(d *Decoder) { d.state().Step = d.shared() }, write: func(e *Encoder) { e.put(e.state.Step) }},
	{header: delivery.HeaderVars, own: true,
		read: func(d *Decoder) { d.state().Vars = bytes.Clone(d.value) }, write: func(e *Encoder) { e.put(string(e.state.Vars)) }},
	{header: delivery.HeaderBegan, own: true,
		read: func(d *Decoder) { d.state().Began = instant(string(d.value)) }, write: func(e *Encoder) { e.time(e.state.Began) }},
	{header: delivery.HeaderWaits, own: true,
		read: func(d *Decoder) { d.state().Waits = d.count() }, write: func(e *Encoder) { e.count(e.state.Waits) }},
	// A retry may have to use the same id, which the destination may know by now.
	{header: delivery.HeaderProviderMessageID, own: true,
		read: (*Decoder).readMessageID, write: func(e *Encoder) { e.put(e.provider.MessageID) }},

	// Those of dead letters alone are read by package deadletter. A value that could not be read and named its campaign itself stays what
	// the job is decoded from when it is replayed.
	{header: delivery.HeaderEnvelopeCampaign, own: true, write: func(e *Encoder) {
		if e.unread && !has(e.job.Headers, delivery.HeaderCampaign) {
			e.put(e.job.Campaign)
		}
	}},
	{header: delivery.HeaderDetail, own: true, dead: true, write: func(e *Encoder) { e.put(OneLine(e.to.Detail, MaxDetail)) }},
	{header: delivery.HeaderProviderCode, own: true, dead: true, write: func(e *Encoder) { e.put(e.provider.Code) }},
	{header: delivery.HeaderGoneSince, own: true, dead: true, write: func(e *Encoder) { e.time(e.provider.GoneSince) }},
	{header: delivery.HeaderAnswer, own: true, dead: true, write: func(e *Encoder) { e.put(e.provider.Answer) }},
	{header: HeaderTruncated, own: true, dead: true, write: func(e *Encoder) {
		if f := e.job.Flaw; f != nil && f.Lost > 0 {
			e.number(f.Lost)
		}
	}},
}

// Places of fields in the table that are read in their own way.
var campaign, jobID, cloudEvent, traceParent, origin = placeOf(delivery.HeaderCampaign), placeOf(delivery.HeaderJobID),
	placeOf(delivery.HeaderCloudEvent), placeOf(delivery.HeaderTraceParent), placeOf(delivery.HeaderOrigin)

// Keys are those of an envelope besides its payload; the first ones are those of the campaign and the id. producerHeaders are the headers that stand
// for them. byLength are the places of the fields by the length of their headers: each header of each record is looked up, and few have the same
// length.
var Keys, producerHeaders, byLength = func() (keys, headers []string, places [32][]place) {
	for i := range fields {
		f := &fields[i]
		places[len(f.header)] = append(places[len(f.header)], place{f.header, i})
		if f.key != "" {
			keys, headers = append(keys, f.key), append(headers, f.header)
		}
	}
	return keys, headers, places
}()

// HeaderOf returns the header that stands for one of the Keys; "" for none.
func HeaderOf(key string) string {
	if i := slices.Index(Keys, key); i >= 0 {
		return producerHeaders[i]
	}
	return ""
}

type place struct {
	header string
	at     int
}

// placeOf returns the place of the field with a header; -1 for a header that is none of pacer's.
func placeOf(header string) int {
	if len(header) < len(byLength) {
		for _, p := range byLength[len(header)] {
			if p.header == header {
				return p.at
			}
		}
	}
	return -1
}

// rewritten reports whether pacer writes the header itself, from the fields of the job. If the record could not be
// decoded, the producer's headers are kept as they are.
func rewritten(header string, unread bool) bool {
	at := placeOf(header)
	return at >= 0 && !fields[at].kept && (fields[at].own || !unread)
}

// values holds the last value of every field; nil if the record does not have it.
type values [len(fields)][]byte

// scan finds the values of the fields; of duplicates the last counts, as in Kafka's lastHeader. The flaw is the first header that no
// producer can have meant as it is: its name belongs to pacer and is not known, or it is there twice.
func (v *values) scan(headers []delivery.Header) (flaw *delivery.Flaw) {
	keys := make([]delivery.Header, 0, delivery.MaxKeys)
	for _, h := range headers {
		at := placeOf(h.Key)
		switch {
		case at < 0 && strings.HasPrefix(h.Key, delivery.HeaderKey):
			if flaw == nil {
				flaw, keys = checkKey(keys, h), append(keys, h)
			}
			continue
		case at < 0:
			if flaw == nil && claimed(h.Key) && h.Key != delivery.HeaderReplayedFrom {
				flaw = invalid(quoted(h.Key), "is not one of pacer's headers; use one of "+strings.Join(producerHeaders, ", "))
			}
			continue
		case v[at] != nil && flaw == nil && strings.HasPrefix(h.Key, delivery.HeaderPrefix):
			flaw = invalid(h.Key, "must be there once")
		}
		if v[at] = h.Value; h.Value == nil {
			v[at] = []byte{} // present, with a null value
		}
	}
	return flaw
}

// checkKey returns what is wrong with a header that has a key of the job; keys are those before it.
func checkKey(keys []delivery.Header, h delivery.Header) *delivery.Flaw {
	switch {
	case !delivery.ValidKeyName(h.Key[len(delivery.HeaderKey):]):
		return invalid(quoted(h.Key), "must end in the name of a key: 1 to 32 lower-case letters, digits and dashes")
	case h.Key == delivery.HeaderKey+delivery.PerDestination:
		return invalid(h.Key, "is not needed: the key is the job's "+delivery.HeaderDestination)
	case len(h.Value) == 0 || len(h.Value) > delivery.MaxIDLength:
		return invalid(h.Key, fmt.Sprintf("must have 1 to %d bytes", delivery.MaxIDLength))
	case has(keys, h.Key):
		return invalid(h.Key, "must be there once")
	case len(keys) >= delivery.MaxKeys:
		return invalid(delivery.HeaderKey+"NAME", fmt.Sprintf("must be there at most %d times", delivery.MaxKeys))
	}
	return nil
}

// claimed reports whether the name belongs to pacer: it begins with pacer-, in any case, or is one of its headers with other separators
// (pacer_not_before, pacerNotBefore).
func claimed(key string) bool {
	const n = len(delivery.HeaderPrefix)
	if len(key) < n || !strings.EqualFold(key[:n-1], delivery.HeaderPrefix[:n-1]) {
		return false
	}
	bare := letters(key)
	return key[n-1] == delivery.HeaderPrefix[n-1] || slices.ContainsFunc(producerHeaders, func(known string) bool {
		return strings.EqualFold(bare, letters(known))
	})
}

// letters leaves out the separators of a name.
func letters(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(name)
}

// quoted quotes a producer's name for a message.
func quoted(name string) string { return fmt.Sprintf("%q", notation.Shorten(name)) }
