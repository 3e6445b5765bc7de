package requeue

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// decodeForTest reads a record the way its reader must: pacer's headers into fields, all others kept.
func decodeForTest(t rapid.TB, r kafka.Record) *delivery.Job {
	j := &delivery.Job{Weight: 1}
	var err error
	if j.Payload, err = readBytes(r.Value); err != nil {
		t.Fatal(err)
	}
	if j.Key, err = readBytes(r.Key); err != nil {
		t.Fatal(err)
	}
	number := func(v string) int {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("not a number: %q", v)
		}
		return n
	}
	instant := func(v string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			t.Fatalf("not a time: %q", v)
		}
		return at
	}
	for _, h := range r.Headers {
		v := string(h.Value)
		switch h.Key {
		case delivery.HeaderCampaign:
			j.Campaign = v
		case delivery.HeaderJobID:
			j.ID = v
		case delivery.HeaderWeight:
			j.Weight = int64(number(v))
		case delivery.HeaderPriority:
			j.Priority = delivery.PriorityHigh
		case delivery.HeaderNotBefore:
			j.NotBefore = instant(v)
		case delivery.HeaderExpiresAt:
			j.ExpiresAt = instant(v)
		case delivery.HeaderContentType:
			j.ContentType = v
		case delivery.HeaderTraceParent:
			j.TraceParent = v
		case delivery.HeaderAttempt:
			j.Attempt = number(v)
		case delivery.HeaderHops:
			j.Hops = number(v)
		case delivery.HeaderTimerHops:
			j.TimerHops = number(v)
		case delivery.HeaderOrigin:
			j.Origin, _ = parseOrigin(v)
		case delivery.HeaderEnqueuedAt:
			j.EnqueuedAt = instant(v)
		case delivery.HeaderFirstRead:
			j.FirstRead = instant(v)
		case delivery.HeaderDue:
			j.Due = instant(v)
		case delivery.HeaderReason:
			j.Reason = v
		case delivery.HeaderDetail:
			j.DefectDetail = v
		default:
			j.Headers = append(j.Headers, delivery.Header{Key: h.Key, Value: h.Value})
		}
	}
	return j
}

func genTime(t *rapid.T, label string) time.Time {
	if rapid.Bool().Draw(t, label+" set") {
		return time.Unix(rapid.Int64Range(1_700_000_000, 2_000_000_000).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns")).UTC()
	}
	return time.Time{}
}

func genBytes(t *rapid.T, label string) []byte {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, label)
}

func genJob(t *rapid.T) *delivery.Job {
	id := rapid.StringMatching(`[!-~]{1,40}`)
	j := &delivery.Job{
		ID: id.Draw(t, "id"), Campaign: id.Draw(t, "campaign"), Weight: rapid.Int64Range(1, 1000).Draw(t, "weight"),
		Priority:  delivery.Priority(rapid.IntRange(0, 1).Draw(t, "priority")),
		NotBefore: genTime(t, "not before"), ExpiresAt: genTime(t, "expires"),
		ContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain"}).Draw(t, "content type"),
		TraceParent: rapid.SampledFrom([]string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).Draw(t, "trace"),
		Payload:     genBytes(t, "payload"), Key: genBytes(t, "key"),
		Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Hops: rapid.IntRange(0, 2).Draw(t, "hops"),
		TimerHops: rapid.IntRange(0, 99).Draw(t, "timer hops"),
		Origin:    delivery.Origin{Topic: "pacer.jobs", Partition: rapid.IntRange(0, 99).Draw(t, "p"), Offset: rapid.Int64Range(0, 1<<60).Draw(t, "o")},
		Due:       genTime(t, "due"), FirstRead: genTime(t, "first read"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "foreign headers") {
		j.Headers = append(j.Headers, delivery.Header{
			Key: rapid.SampledFrom([]string{"a", "b", "ce_id", "", "X-Übung"}).Draw(t, "name"), Value: genBytes(t, "value"),
		})
	}
	return j
}

func TestRecordKeepsTheWholeJob(t *testing.T) {
	now := time.Date(2026, 11, 21, 1, 2, 3, 456789, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		job := genJob(t)
		to := delivery.Destination{Kind: delivery.DestinationKind(rapid.IntRange(0, 1).Draw(t, "kind")), Reason: "why", Due: genTime(t, "to due")}
		got := decodeForTest(t, encode(&item{job: job, to: to}, now))

		want := *job
		want.EnqueuedAt, want.Reason, want.Due = now, "why", job.Due
		if to.Due.After(job.Due) {
			want.Due = to.Due
		}
		if to.Kind == delivery.ToLane {
			want.Hops++
		} else {
			want.TimerHops++
		}
		if !reflect.DeepEqual(*got, want) {
			t.Fatalf("got  %+v\nwant %+v", *got, want)
		}
	})
}

func TestEstimateCoversTheRecord(t *testing.T) {
	now := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		job := genJob(t)
		r := encode(&item{job: job, to: lane}, now)
		n := 20 + len(job.Payload) + len(job.Key)
		for _, h := range r.Headers {
			n += len(h.Key) + len(h.Value) + 4
		}
		if est := recordSize(job); n > est+150 {
			t.Fatalf("record of %d bytes was taken for %d", n, est)
		}
	})
}

func TestContentTypeIsWrittenOnce(t *testing.T) {
	job := newSource("s").job(1, "c")
	job.ContentType = "application/json"
	job.Headers = []delivery.Header{{Key: "content-type", Value: []byte("text/plain")}, {Key: "pacer-weight", Value: []byte("7")}, {Key: "x", Value: nil}}
	r := encode(&item{job: job, to: lane}, time.Now())
	var seen []string
	for _, h := range r.Headers {
		if h.Key == "content-type" || h.Key == "pacer-weight" || h.Key == "x" {
			seen = append(seen, h.Key+"="+string(h.Value))
		}
	}
	if want := []string{"content-type=application/json", "x="}; !slices.Equal(seen, want) {
		t.Errorf("headers %q, want %q", seen, want)
	}
}

func TestUnreadRecordIsKeptAsItCame(t *testing.T) {
	original := []delivery.Header{
		{Key: "pacer-campaign", Value: []byte("spring")}, {Key: "pacer-weight", Value: []byte("many")},
		{Key: "pacer-reason", Value: []byte("forged")}, {Key: "x", Value: []byte("y")},
	}
	job := newSource("s").job(7, "spring")
	job.Defect, job.Headers, job.Payload, job.ContentType = delivery.ReasonInvalidHeader, original, []byte("{not json"), "application/octet-stream"
	to := delivery.Destination{Kind: delivery.ToDead, Reason: delivery.ReasonInvalidHeader, Detail: "pacer-weight must be\nan integer"}
	r := encode(&item{job: job, to: to}, time.Now())
	all := make(map[string][]string)
	for _, h := range r.Headers {
		all[h.Key] = append(all[h.Key], string(h.Value))
	}
	for key, want := range map[string][]string{
		"pacer-campaign": {"spring"}, "pacer-weight": {"many"}, "x": {"y"}, "pacer-reason": {"invalid_header"},
		"pacer-detail": {"pacer-weight must be an integer"}, "pacer-origin": {"pacer.jobs/0/7"}, "pacer-job-id": {"spring-7"},
		"content-type": nil,
	} {
		if !slices.Equal(all[key], want) {
			t.Errorf("%s: %q, want %q", key, all[key], want)
		}
	}
	if value, _ := readBytes(r.Value); string(value) != "{not json" {
		t.Errorf("value %q", value)
	}
}

func TestOversizeRecordKeepsTheBeginning(t *testing.T) {
	job := newSource("s").job(7, "c")
	job.Payload = bytes.Repeat([]byte("p"), 200<<10)
	job.Key = bytes.Repeat([]byte("k"), 100<<10)
	job.Headers = []delivery.Header{{Key: "small", Value: []byte("v")}, {Key: "big", Value: make([]byte, 100<<10)}}
	size := func(c cut) int {
		r := encode(&item{job: job, to: dead, cut: c}, time.Now())
		value, _ := readBytes(r.Value)
		key, _ := readBytes(r.Key)
		n := len(value) + len(key)
		text := make(map[string]string)
		for _, h := range r.Headers {
			n += len(h.Key) + len(h.Value)
			text[h.Key] = string(h.Value)
		}
		if text[HeaderTruncated] != strconv.Itoa(200<<10) || text[delivery.HeaderOrigin] != "pacer.jobs/0/7" {
			t.Errorf("cut %d: headers %q", c, text)
		}
		if c == cutPayload && (len(value) != 64<<10 || text["small"] != "v") {
			t.Errorf("kept %d bytes of the payload, small=%q", len(value), text["small"])
		}
		return n
	}
	if n := size(cutPayload); n > 90<<10 {
		t.Errorf("cut record has %d bytes", n)
	}
	if n := size(cutAll); n > 1<<10 {
		t.Errorf("bare record has %d bytes", n)
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{"a\r\nb\tc": "a  b c", " x ": "x", "\xff": "?", "": ""} {
		if got := oneLine(in, 100); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
	if got := oneLine(strings.Repeat("ü", 400), maxDetail+1); len(got) > maxDetail+1 || !utf8.ValidString(got) {
		t.Errorf("oneLine cut to %d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}

func TestParseOrigin(t *testing.T) {
	for _, bad := range []string{"", "a/b", "/1/2", "a/-1/2", "a/1/x", "a/1/2/3", "a/1/-2"} {
		if o, ok := parseOrigin(bad); ok {
			t.Errorf("parseOrigin(%q) = %v", bad, o)
		}
	}
}
