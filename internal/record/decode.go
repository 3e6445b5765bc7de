package record

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"
	"unsafe"

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
	written, first, published last[string, time.Time]
	topicID                   last[string, delivery.TopicID]

	// Of the record that is decoded: its job, and one of its values with its header or key.
	job    *delivery.Job
	peeked delivery.Job
	limits Limits
	name   string
	value  []byte
}

// last is the last input and the value made of it.
type last[K comparable, V any] struct {
	from K
	made V
}

// of returns read(from). That of the zero value is the zero value.
func (l *last[K, V]) of(from K, read func(K) V) V {
	if from != l.from {
		l.from, l.made = from, read(from)
	}
	return l.made
}

// lastOf returns read(d.value).
func lastOf[V any](d *Decoder, l *last[string, V], read func(string) V) V {
	switch {
	case string(d.value) == l.from:
		return l.made
	case len(d.value) > delivery.MaxIDLength:
		return read(string(d.value))
	}
	return l.of(string(d.value), read)
}

// maxNames bounds the names that are remembered.
const maxNames = 256

var seed = maphash.MakeSeed()

// shared returns the value as a string, for values that other records are likely to have too.
func (d *Decoder) shared() string { return d.share(d.value) }

func (d *Decoder) share(b []byte) string {
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
// Headers written by pacer count only in topics that pacer owns (lanes and timers), and there in records that name their origin: any
// producer may write the others. Names that are not known are a flaw where a producer wrote the record.
func (d *Decoder) Decode(r *delivery.Record, from delivery.Place, limits Limits, now time.Time) *delivery.Job {
	j := new(delivery.Job)
	d.decode(j, r, from, limits, now)
	if j.ID == "" {
		j.ID = j.Origin.String()
	}
	keep(j, r)
	return j
}

// Peek is Decode for who asks only what a job is for and when it may be sent. The job has neither an id nor bytes of its record, and is valid
// until the next call.
func (d *Decoder) Peek(r *delivery.Record, from delivery.Place, limits Limits, now time.Time) *delivery.Job {
	d.decode(&d.peeked, r, from, limits, now)
	return &d.peeked
}

// decode sets all of a job but what keep does.
func (d *Decoder) decode(j *delivery.Job, r *delivery.Record, from delivery.Place, limits Limits, now time.Time) {
	*j = delivery.Job{
		Weight: 1, Flaw: r.Flaw, Meta: delivery.Meta{ContentType: contentTypeBinary},
		History: delivery.History{
			Origin: delivery.Origin{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, TopicID: r.TopicID}, FirstRead: now,
		},
		Reading: delivery.Reading{
			From: from, Published: delivery.ShortStampOf(r.Time), Offset: r.Offset, Size: size(r), ReadAt: now,
		},
	}
	d.job, d.limits = j, limits
	var v values
	flaw := v.scan(r.Headers)
	if j == &d.peeked {
		v[jobID], v[cloudEvent] = nil, nil
	}
	if from != delivery.FromIngress {
		if r.Time.Unix() > 0 && r.Time.Before(now) {
			j.FirstRead = r.Time // of a producer's record; the same at every read
		}
		if o, ok := d.origin(v[origin]); ok {
			j.Origin, j.Published, flaw = o, 0, nil
			d.read(&v, true, false)
			if !j.State.Valid() {
				j.State = nil
			}
		}
		if j.EnqueuedAt == 0 {
			j.EnqueuedAt = delivery.StampOf(r.Time)
		}
	}
	j.Flaw = cmp.Or(j.Flaw, flaw)
	switch {
	case v[campaign] != nil:
		if v[jobID] != nil {
			v[cloudEvent] = nil
		}
		d.read(&v, false, false)
	case r.Flaw == nil:
		d.readEnvelope(r, &v)
	}
	j.TraceParent = validTraceParent(v[traceParent])
	d.job, d.value = nil, nil
}

// read reads those fields that are pacer's own, or the others; of an envelope, which has keys.
func (d *Decoder) read(v *values, own, envelope bool) {
	for i := range fields {
		f := &fields[i]
		if v[i] == nil || f.read == nil || f.own != own {
			continue
		}
		if d.name, d.value = f.header, v[i]; envelope {
			d.name = cmp.Or(f.key, f.header)
		}
		f.read(d)
	}
}

// keep copies what the job has of its record, into one piece of memory: its key, its headers that stay on the record when it is
// written again, and its value, unless it was an envelope.
func keep(j *delivery.Job, r *delivery.Record) {
	n, unread := len(r.Key), unread(j)
	for i, h := range r.Headers {
		if rewritten(h.Key, unread) {
			continue
		}
		if j.Headers == nil {
			j.Headers = make([]delivery.Header, 0, len(r.Headers)-i)
		}
		j.Headers = append(j.Headers, h)
		n += len(h.Value)
	}
	j.Size += int64(cap(j.Headers)) * int64(unsafe.Sizeof(delivery.Header{}))
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
	for i := range j.Headers {
		j.Headers[i].Value = copied(j.Headers[i].Value)
	}
}

func invalid(name, rule string) *delivery.Flaw {
	return &delivery.Flaw{Defect: delivery.ReasonInvalidHeader, Detail: name + " " + rule}
}

// invalid records that the value breaks a rule, if that is the first defect.
func (d *Decoder) invalid(rule string) { d.job.Flaw = cmp.Or(d.job.Flaw, invalid(d.name, rule)) }

func (d *Decoder) readCampaign() {
	switch id := d.shared(); {
	case delivery.ValidCampaign(id):
		d.job.Campaign = id
	case id == delivery.UnknownCampaign:
		d.invalid("must not be " + id + ", which stands for jobs without a campaign")
	default:
		d.invalid(delivery.IDRule)
	}
}

func (d *Decoder) readID() {
	if id := string(d.value); delivery.ValidID(id) {
		d.job.ID = id
	} else {
		d.invalid(delivery.IDRule)
	}
}

func (d *Decoder) readDestination() {
	if id := d.shared(); delivery.ValidID(id) {
		d.job.Destination = id
	} else {
		d.invalid(delivery.IDRule)
	}
}

// readContentType allocates no memory for the common types.
func (d *Decoder) readContentType() {
	switch string(d.value) {
	case contentTypeJSON:
		d.job.ContentType = contentTypeJSON
	case contentTypeBinary:
	default:
		if s := string(d.value); printable(s) {
			d.job.ContentType = s
		} else {
			d.invalid("must be printable ASCII")
		}
	}
}

func (d *Decoder) readWeight() {
	w, err := strconv.ParseInt(string(d.value), 10, 64)
	switch most := d.limits.MaxWeight; {
	case err != nil || w < 1:
		d.invalid(fmt.Sprintf("must be an integer from 1 to %d", most))
		return
	case w > most && d.job.Flaw == nil:
		d.job.Flaw = &delivery.Flaw{Defect: delivery.ReasonOverweight, Detail: fmt.Sprintf("%s %d is above max_weight %d", d.name, w, most)}
	}
	d.job.Weight = w
}

func (d *Decoder) readPriority() {
	switch string(d.value) {
	case "high":
		d.job.Priority = delivery.PriorityHigh
	case "normal":
	default:
		d.invalid("must be high or normal")
	}
}

// readNotBefore reads a bounded time, so that no job circulates in the timers for years.
func (d *Decoder) readNotBefore() {
	d.job.NotBefore = d.time()
	d.checkNotBefore()
}

func (d *Decoder) checkNotBefore() {
	if most := d.limits.MaxNotBefore; most > 0 && d.job.NotBefore.Sub(d.job.FirstRead) > most {
		d.invalid(fmt.Sprintf("%s is further ahead than max_not_before (%s)", d.value, notation.FormatSpan(most)))
	}
}

func (d *Decoder) readZone() {
	zone, err := notation.Zone(d.shared())
	if err != nil {
		d.invalid("must be the name of a time zone, such as Asia/Yekaterinburg or UTC")
		return
	}
	d.job.Zone = zone
}

// readLocal reads what the clocks of the recipient show at the time before which the job must not be sent.
func (d *Decoder) readLocal() {
	shown, err := time.Parse("2006-01-02T15:04:05", string(d.value))
	if err != nil {
		shown, err = time.Parse("2006-01-02T15:04", string(d.value))
	}
	switch {
	case err != nil:
		d.invalid("must be a time without a zone, such as 2006-01-02T15:04")
	case d.job.Zone == nil:
		d.invalid("needs the zone of the recipient; give " + delivery.HeaderTimeZone + ", in an envelope time_zone")
	case !d.job.NotBefore.IsZero():
		d.invalid("excludes " + delivery.HeaderNotBefore + "; give one of them")
	default:
		d.job.NotBefore = notation.FirstShown(shown, d.job.Zone)
		d.checkNotBefore()
	}
}

// isLocal reports whether the time before which the job must not be sent is what the clocks of its zone show. It is stored as that, so that
// a change of the zone's rules applies.
func isLocal(j *delivery.Job) bool {
	return j.Zone != nil && !j.NotBefore.IsZero() && j.NotBefore.Location() == j.Zone
}

func (d *Decoder) readExpiresAt() { d.job.ExpiresAt = d.time() }

func (d *Decoder) readMessageID() {
	if n := len(d.value); n > 0 && n <= delivery.MaxProviderText {
		d.job.Call.Provider = &delivery.Provider{MessageID: string(d.value)}
	}
}

// time returns the time that a producer wrote.
func (d *Decoder) time() time.Time {
	at, err := time.Parse(time.RFC3339, string(d.value))
	if err != nil || at.UTC().Year() > 9999 {
		d.invalid("must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z")
		return time.Time{}
	}
	return at
}

func (d *Decoder) readFormat() {
	if string(d.value) != "1" {
		d.invalid("must be 1: pacer reads no other format of its records")
	}
}

// state returns the job's state, which it has from now on.
func (d *Decoder) state() *delivery.State {
	if d.job.State == nil {
		d.job.State = &delivery.State{}
	}
	return d.job.State
}

// count returns the value as a number of times; 0 if it is none.
func (d *Decoder) count() int32 {
	n, err := strconv.ParseInt(string(d.value), 10, 32)
	if err != nil {
		return 0
	}
	return int32(max(0, n))
}

// instant returns the time that was written; zero if it is none.
func instant(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// ParseOrigin parses the output of delivery.Origin.String.
func ParseOrigin(s string) (delivery.Origin, bool) { return new(Decoder).origin([]byte(s)) }

func (d *Decoder) origin(s []byte) (delivery.Origin, bool) {
	rest, offset, ok1 := cutLast(s)
	topic, partition, ok2 := cutLast(rest)
	o, err1 := strconv.ParseInt(string(offset), 10, 64)
	p, err2 := strconv.ParseInt(string(partition), 10, 32)
	if !ok1 || !ok2 || err1 != nil || err2 != nil || o < 0 || p < 0 || len(topic) == 0 {
		return delivery.Origin{}, false
	}
	return delivery.Origin{Topic: d.share(topic), Partition: int(p), Offset: o}, true
}

func cutLast(s []byte) (before, after []byte, ok bool) {
	i := bytes.LastIndexByte(s, '/')
	if i < 0 {
		return nil, nil, false
	}
	return s[:i], s[i+1:], true
}

// printable reports whether a sink can send s as a header.
func printable(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
