package record

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

var toLane = delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}

// plainJob is the job of an offset.
func plainJob(offset int64, campaign string) *delivery.Job {
	return &delivery.Job{
		ID: campaign + "-" + strconv.FormatInt(offset, 10), Campaign: campaign, Weight: 1, Payload: []byte("payload"),
		History: delivery.History{Origin: delivery.Origin{Topic: "pacer.jobs", Partition: 0, Offset: offset}},
		Reading: delivery.Reading{Offset: offset},
	}
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
		Destination: rapid.SampledFrom([]string{"", "shop-7", " https://shop.example:443"}).Draw(t, "destination"),
		NotBefore:   genTime(t, "not before"), ExpiresAt: genTime(t, "expires"),
		Meta: delivery.Meta{
			ContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain"}).Draw(t, "content type"),
			TraceParent: rapid.SampledFrom([]string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).Draw(t, "trace"),
			Key:         genBytes(t, "key"),
		},
		Payload: genBytes(t, "payload"),
		History: delivery.History{
			Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Hops: rapid.Int32Range(0, 2).Draw(t, "hops"),
			TimerHops: rapid.Int32Range(0, 99).Draw(t, "timer hops"),
			Origin: delivery.Origin{
				Topic: "pacer.jobs", Partition: rapid.IntRange(0, 99).Draw(t, "p"), Offset: rapid.Int64Range(0, 1<<60).Draw(t, "o"),
				TopicID: rapid.SampledFrom([]delivery.TopicID{{}, delivery.NewTopicID(numbers)}).Draw(t, "topic id"),
			},
			FirstRead: genTime(t, "first read"),
		},
		Timing: delivery.Timing{Due: genTime(t, "due")},
		Reading: delivery.Reading{
			Priority: delivery.Priority(rapid.IntRange(0, 1).Draw(t, "priority")), Published: delivery.ShortStampOf(genTime(t, "published")),
		},
	}
	if rapid.Bool().Draw(t, "called") {
		j.Call.Provider = &delivery.Provider{MessageID: id.Draw(t, "message id")}
	}
	if rapid.Bool().Draw(t, "of several steps") {
		j.State = &delivery.State{
			Step: id.Draw(t, "step"), Vars: rapid.SampledFrom([][]byte{nil, []byte(`{"id":"a b","n":1}`), bytes.Repeat([]byte("v"), delivery.MaxVars)}).Draw(t, "vars"),
			Began: genTime(t, "began"), Waits: rapid.Int32Range(0, 99).Draw(t, "waits"),
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "foreign headers") {
		j.Headers = append(j.Headers, delivery.Header{
			Key: rapid.SampledFrom([]string{"a", "b", "ce_id", "", "X-Übung"}).Draw(t, "name"), Value: genBytes(t, "value"),
		})
	}
	return j
}

// foreign leaves out the two headers that pacer both writes from fields and keeps for the producer.
func foreign(headers []delivery.Header) []delivery.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h delivery.Header) bool {
		return h.Key == delivery.HeaderContentType || h.Key == delivery.HeaderTraceParent
	})
}

// TestDecodeReadsWhatEncodeWrote: what is known of a job survives each of its moves, into a lane or a timer.
func TestDecodeReadsWhatEncodeWrote(t *testing.T) {
	now := time.Date(2026, 11, 21, 1, 2, 3, 456789, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		job := genJob(t)
		kind := delivery.RerouteKind(rapid.IntRange(0, 1).Draw(t, "kind"))
		why := rapid.SampledFrom([]delivery.Reason{"why", delivery.ReasonRetry}).Draw(t, "why")
		to := delivery.Reroute{Kind: kind, Reason: why, Due: genTime(t, "to due")}
		written := new(Encoder).Encode(job, to, now)
		written.Topic, written.Partition, written.Offset = "t", 3, 42
		written.Headers = slices.Clone(written.Headers)
		readAt, from := now.Add(time.Second), map[delivery.RerouteKind]delivery.Place{
			delivery.ToLane: delivery.FromLane, delivery.ToTimer: delivery.FromTimer,
		}[kind]
		got := Decode(&written, from, Limits{MaxWeight: delivery.MaxWeight}, readAt)

		want := *job
		if job.FoundDestination() {
			want.Destination = ""
		}
		want.EnqueuedAt, want.Reason, want.Due = delivery.StampOf(now), string(why), job.Due
		if to.Due.After(job.Due) {
			want.Due = to.Due
		}
		if to.Kind == delivery.ToLane {
			want.Hops++
		} else {
			want.TimerHops++
		}
		if want.ContentType == "" {
			want.ContentType = contentTypeBinary
		}
		if want.FirstRead.IsZero() {
			want.FirstRead = now // when the record was written
		}
		want.From, want.Offset, want.ReadAt, want.Size = from, 42, readAt, got.Size
		want.Headers = nil // compared below: those that are written from fields are not kept as headers
		headers := got.Headers
		got.Headers = nil
		if !reflect.DeepEqual(*got, want) {
			t.Fatalf("got  %+v\nwant %+v", *got, want)
		}
		if !slices.EqualFunc(foreign(headers), job.Headers, func(a, b delivery.Header) bool {
			return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
		}) {
			t.Fatalf("headers %v, want %v", foreign(headers), job.Headers)
		}
		again := *got
		again.Headers = slices.Clone(headers)
		twice := new(Encoder).Encode(&again, to, now)
		if kept := Decode(&twice, from, Limits{MaxWeight: delivery.MaxWeight}, readAt).Headers; len(foreign(kept)) != len(job.Headers) || len(kept) > len(job.Headers)+2 {
			t.Fatalf("the headers grow: %v, then %v", headers, kept)
		}
	})
}

func TestContentTypeIsWrittenOnce(t *testing.T) {
	job := plainJob(1, "c")
	job.ContentType = "application/json"
	job.Headers = []delivery.Header{{Key: "content-type", Value: []byte("text/plain")}, {Key: "pacer-weight", Value: []byte("7")}, {Key: "x", Value: nil}}
	r := new(Encoder).Encode(job, toLane, time.Now())
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
	job := plainJob(7, "spring")
	job.Flaw, job.Headers, job.Payload, job.ContentType = &delivery.Flaw{Defect: delivery.ReasonInvalidHeader}, original, []byte("{not json"), "application/octet-stream"
	to := delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonInvalidHeader, Detail: "pacer-weight must be\nan integer"}
	r := new(Encoder).Encode(job, to, time.Now())
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
	if string(r.Value) != "{not json" {
		t.Errorf("value %q", r.Value)
	}
}

// TestProviderOfADeadLetter: what the destination said is on the dead letter, and on no other record of the job but for the id
// of the message, which a retry may need.
func TestProviderOfADeadLetter(t *testing.T) {
	job := plainJob(7, "c")
	job.Headers = []delivery.Header{{Key: delivery.HeaderProviderCode, Value: []byte("of an earlier letter")}}
	job.Call.Provider = &delivery.Provider{Code: "UNREGISTERED", MessageID: "m-1", GoneSince: time.Date(2026, 11, 1, 2, 3, 4, 0, time.UTC), Answer: "no such user"}
	names := []string{delivery.HeaderProviderCode, delivery.HeaderProviderMessageID, delivery.HeaderGoneSince, delivery.HeaderAnswer}
	dead := new(Encoder).Encode(job, delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonRejected}, time.Now())
	for i, want := range []string{"UNREGISTERED", "m-1", "2026-11-01T02:03:04Z"} {
		if got := dead.Header(names[i]); got != want {
			t.Errorf("%s %q, want %q", names[i], got, want)
		}
	}
	lane := new(Encoder).Encode(job, toLane, time.Now())
	if got := lane.Header(delivery.HeaderProviderMessageID); got != "m-1" {
		t.Errorf("%s %q on the way to a retry", delivery.HeaderProviderMessageID, got)
	}
	for _, h := range append(NewLife(lane.Headers), NewLife(dead.Headers)...) {
		if slices.Contains(names, h.Key) {
			t.Errorf("%s is on a record that begins a job", h.Key)
		}
	}
	if lane.Header(delivery.HeaderProviderCode)+lane.Header(delivery.HeaderGoneSince) != "" {
		t.Errorf("%v is on the way to a retry", lane.Headers)
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{"a\r\nb\tc": "a  b c", " x ": "x", "\xff": "?", "": ""} {
		if got := OneLine(in, 100); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
	if got := OneLine(strings.Repeat("ü", 400), MaxDetail+1); len(got) > MaxDetail+1 || !utf8.ValidString(got) {
		t.Errorf("OneLine cut to %d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}

func TestParseOrigin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := delivery.Origin{
			Topic: rapid.StringMatching(`[a-z/.]{1,20}`).Draw(t, "topic"), Partition: rapid.IntRange(0, 1<<30).Draw(t, "partition"),
			Offset: rapid.Int64Range(0, 1<<62).Draw(t, "offset"),
		}
		if got, ok := ParseOrigin(want.String()); !ok || got != want {
			t.Fatalf("%v was read as %v", want, got)
		}
	})
}

// BenchmarkThroughALane is what a job costs that is written to a lane and read again.
func BenchmarkThroughALane(b *testing.B) {
	r := New("spring", "job-1", make([]byte, 200))
	r.Topic = "jobs"
	job, to := Decode(&r, delivery.FromIngress, limits, readAt), delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}
	job.Origin.TopicID = delivery.NewTopicID(numbers)
	b.Run("encode", func(b *testing.B) {
		var e Encoder
		b.ReportAllocs()
		for b.Loop() {
			_ = e.Encode(job, to, readAt)
		}
	})
	b.Run("decode", func(b *testing.B) {
		var d Decoder
		moved := new(Encoder).Encode(job, to, readAt)
		b.ReportAllocs()
		for b.Loop() {
			_ = d.Decode(&moved, delivery.FromLane, limits, readAt)
		}
	})
}
