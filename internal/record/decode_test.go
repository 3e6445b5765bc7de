package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

var limits = Limits{MaxWeight: delivery.MaxWeight, MaxNotBefore: 90 * 24 * time.Hour}

var readAt = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// rec makes a record from header pairs.
func rec(value string, pairs ...string) *delivery.Record {
	r := &delivery.Record{Topic: "jobs", Partition: 3, Offset: 42, Time: readAt.Add(-time.Minute), Value: []byte(value)}
	for i := 0; i < len(pairs); i += 2 {
		r.Headers = append(r.Headers, delivery.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return r
}

// shape writes what matters of a job in one line.
func shape(j *delivery.Job) string {
	if j.Flaw != nil {
		return string(j.Flaw.Defect) + ": " + j.Flaw.Detail
	}
	s := fmt.Sprintf("%s %s w%d %s %q", j.Campaign, j.ID, j.Weight, j.ContentType, j.Payload)
	if j.Priority == delivery.PriorityHigh {
		s += " high"
	}
	if j.Destination != "" {
		s += " to " + j.Destination
	}
	if !j.NotBefore.IsZero() {
		s += " from " + j.NotBefore.UTC().Format(time.RFC3339Nano)
	}
	if !j.ExpiresAt.IsZero() {
		s += " until " + j.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	if j.TraceParent != "" {
		s += " trace " + j.TraceParent
	}
	return s
}

func TestDecodeIngress(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	long := strings.Repeat("x", 257)
	for _, c := range []struct {
		name string
		rec  *delivery.Record
		want string
	}{
		{"least", rec("hello", "pacer-campaign", "spring"), `spring jobs/3/42 w1 application/octet-stream "hello"`},
		{"all", rec("p", "pacer-campaign", "c", "pacer-job-id", "u-1", "pacer-weight", "7", "pacer-priority", "high",
			"pacer-not-before", "2026-11-21T12:00:00.5+03:00", "pacer-expires-at", "2026-11-22T00:00:00Z",
			"content-type", "text/plain; charset=utf-8", "traceparent", trace),
			`c u-1 w7 text/plain; charset=utf-8 "p" high from 2026-11-21T09:00:00.5Z until 2026-11-22T00:00:00Z trace ` + trace},
		{"cloud event", rec("", "pacer-campaign", "c", "ce_id", "e1"), `c e1 w1 application/octet-stream ""`},
		{"job id before cloud event", rec("", "ce_id", "e1", "pacer-job-id", "j", "pacer-campaign", "c"), `c j w1 application/octet-stream ""`},
		{"unusable trace", rec("", "pacer-campaign", "a", "traceparent", "x"), `a jobs/3/42 w1 application/octet-stream ""`},
		{"heaviest", rec("", "pacer-campaign", "a", "pacer-weight", "1000"), `a jobs/3/42 w1000 application/octet-stream ""`},

		{"empty campaign", rec("{}", "pacer-campaign", ""), "invalid_header: pacer-campaign " + delivery.IDRule},
		{"campaign with space", rec("", "pacer-campaign", "a b"), "invalid_header: pacer-campaign " + delivery.IDRule},
		{"long campaign", rec("", "pacer-campaign", long), "invalid_header: pacer-campaign " + delivery.IDRule},
		{"long id", rec("", "pacer-campaign", "a", "pacer-job-id", long), "invalid_header: pacer-job-id " + delivery.IDRule},
		{"bad cloud event", rec("", "pacer-campaign", "a", "ce_id", "ü"), "invalid_header: ce_id " + delivery.IDRule},
		{"word weight", rec("", "pacer-campaign", "a", "pacer-weight", "two"), "invalid_header: pacer-weight must be an integer from 1 to 1000"},
		{"weight 0", rec("", "pacer-campaign", "a", "pacer-weight", "0"), "invalid_header: pacer-weight must be an integer from 1 to 1000"},
		{"fraction", rec("", "pacer-campaign", "a", "pacer-weight", "1.5"), "invalid_header: pacer-weight must be an integer from 1 to 1000"},
		{"too heavy", rec("", "pacer-campaign", "a", "pacer-weight", "1001"), "overweight: pacer-weight 1001 is above max_weight 1000"},
		{"priority", rec("", "pacer-campaign", "a", "pacer-priority", "HIGH"), "invalid_header: pacer-priority must be high or normal"},
		{"destination", rec("p", "pacer-campaign", "a", "pacer-destination", "shop-7"), `a jobs/3/42 w1 application/octet-stream "p" to shop-7`},
		{"empty destination", rec("", "pacer-campaign", "a", "pacer-destination", ""), "invalid_header: pacer-destination " + delivery.IDRule},
		{"envelope destination", rec(`{"campaign":"c","payload":1,"destination":"shop-7"}`), `c jobs/3/42 w1 application/json "1" to shop-7`},
		{"time", rec("", "pacer-campaign", "a", "pacer-expires-at", "tomorrow"),
			"invalid_header: pacer-expires-at must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"},
		{"content type", rec("", "pacer-campaign", "a", "content-type", "a\r\nb"), "invalid_header: content-type must be printable ASCII"},

		{"envelope", rec(`{"campaign":"spring","id":"u-42","weight":2,"priority":"high","not_before":"2026-11-21T09:00:00Z",` +
			`"expires_at":"2026-11-22T00:00:00Z","payload":{"b": 1,  "a":[1.0]}}`),
			`spring u-42 w2 application/json "{\"b\": 1,  \"a\":[1.0]}" high from 2026-11-21T09:00:00Z until 2026-11-22T00:00:00Z`},
		{"bare envelope", rec(`{"campaign":"c","payload":null}`), `c jobs/3/42 w1 application/json "null"`},
		{"envelope nulls", rec(`{"campaign":"c","payload":"x","id":null,"weight":null,"priority":null}`), `c jobs/3/42 w1 application/json "\"x\""`},
		{"header before envelope", rec(`{"campaign":"c","payload":1}`, "pacer-campaign", "h"),
			`h jobs/3/42 w1 application/octet-stream "{\"campaign\":\"c\",\"payload\":1}"`},
		{"not json", rec("hello"), "undecodable: no pacer-campaign header, and the value is not a JSON envelope with a campaign"},
		{"empty", rec(""), "undecodable: no pacer-campaign header, and the value is not a JSON envelope with a campaign"},
		{"array", rec("[]"), "undecodable: no pacer-campaign header, and the value is not a JSON envelope with a campaign"},
		{"trailing", rec(`{"campaign":"c","payload":1}x`), "undecodable: no pacer-campaign header, and the value is not one JSON object, though it begins like an envelope"},
		{"no campaign", rec(`{"payload":1}`), "undecodable: no pacer-campaign header, and the value is not a JSON envelope with a campaign"},
		{"number campaign", rec(`{"campaign":1,"payload":1}`), "undecodable: the envelope's campaign must be a string"},
		{"no payload", rec(`{"campaign":"c"}`), "undecodable: the envelope has no payload"},
		{"payload misspelled", rec(`{"campaign":"c","paylod":1}`), `undecodable: the envelope has no payload, and "paylod" is not a key of an envelope; use one of ` + knownKeys},
		{"envelope campaign", rec(`{"campaign":"","payload":1}`), "invalid_header: campaign " + delivery.IDRule},
		{"envelope weight", rec(`{"campaign":"c","payload":1,"weight":"2"}`), "invalid_header: weight must be an integer from 1 to 1000"},
		{"envelope id", rec(`{"campaign":"c","payload":1,"id":7}`), "invalid_header: id must be a string"},
		{"envelope time", rec(`{"campaign":"c","payload":1,"expires_at":"x"}`),
			"invalid_header: expires_at must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"},
		{"envelope of a cloud event", rec(`{"campaign":"c","payload":1}`, "ce_id", "e1"), `c e1 w1 application/json "1"`},
		{"id before cloud event", rec(`{"campaign":"c","id":"u-1","payload":1}`, "ce_id", "e1"), `c u-1 w1 application/json "1"`},
		{"envelope of a bad cloud event", rec(`{"campaign":"c","payload":1}`, "ce_id", "ü"), "invalid_header: ce_id " + delivery.IDRule},
		{"heavy envelope", rec(`{"campaign":"c","payload":1,"weight":2000}`), "overweight: weight 2000 is above max_weight 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := shape(Decode(c.rec, delivery.FromIngress, limits, readAt)); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A record is in the buffers of a fetch, which are used again while its job is open.
func TestJobHasMemoryOfItsOwn(t *testing.T) {
	var d Decoder
	for _, r := range []*delivery.Record{
		rec("payload", "pacer-campaign", "c", "pacer-job-id", "1", "content-type", "text/plain", "x-own", "kept", "empty", ""),
		rec(`{"campaign":"c","id":"1","payload":"payload"}`, "x-own", "kept"),
		rec("flawed", "pacer-campaign", "c", "pacer-weight", "x", "content-type", "text/plain", "x-own", "kept"),
	} {
		r.Key = []byte("key")
		j := d.Decode(r, delivery.FromIngress, limits, readAt)
		show := func() string {
			return fmt.Sprintf("%s %s %s %s %s %q", j.Campaign, j.ID, j.ContentType, j.Key, j.Payload, j.Headers)
		}
		want := show()
		spoil := func(b []byte) {
			for i := range b {
				b[i] = '#'
			}
		}
		spoil(r.Key)
		spoil(r.Value)
		for i := range r.Headers {
			spoil(r.Headers[i].Value)
			r.Headers[i].Key = "#"
		}
		if got := show(); got != want {
			t.Errorf("after the record was overwritten:\n got %s\nwant %s", got, want)
		}
	}
	for i := range 3 * maxNames {
		d.Decode(rec("p", "pacer-campaign", fmt.Sprint(i)), delivery.FromIngress, limits, readAt)
	}
	long := strings.Repeat("x", delivery.MaxIDLength+1)
	d.Decode(rec("p", "pacer-campaign", "c", "pacer-reason", long, "pacer-origin", long+"/1/2"), delivery.FromLane, limits, readAt)
	if slices.Contains(d.names[:], long) {
		t.Error("a long name is remembered")
	}
}

// numbers are the bytes of an id.
var numbers = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// Headers written by pacer count in its own topics and nowhere else.
func TestDecodeHistory(t *testing.T) {
	pairs := []string{
		"pacer-campaign", "c", "pacer-attempt", "3", "pacer-hops", "1", "pacer-timer-hops", "2",
		"pacer-origin", "in/a/7/900", "pacer-origin-topic-id", "AAECAwQFBgcICQoLDA0ODw", "pacer-enqueued-at", "2026-11-21T09:59:00.000000001Z",
		"pacer-due", "2026-11-21T10:05:00Z", "pacer-first-read", "2026-11-20T00:00:00Z", "pacer-reason", "retry",
		"pacer-published-at", "2026-11-19T23:59:59Z",
		"pacer-detail", "d", "pacer-replayed-from", "dead/1/2", "x-own", "kept", "pacer-new", "kept too", "ce_type", "t",
	}
	j := Decode(rec("", pairs...), delivery.FromTimer, limits, readAt)
	if j.Attempt != 3 || j.Hops != 1 || j.TimerHops != 2 || j.Reason != "retry" ||
		j.Origin != (delivery.Origin{Topic: "in/a", Partition: 7, Offset: 900, TopicID: delivery.NewTopicID(numbers)}) || j.ID != "in/a/7/900" ||
		j.EnqueuedAt != delivery.StampOf(readAt.Add(-time.Minute+1)) || !j.Due.Equal(readAt.Add(5*time.Minute)) ||
		!j.FirstRead.Equal(readAt.Add(-34*time.Hour)) || !j.Published.Time().Equal(j.FirstRead.Add(-time.Second)) {
		t.Errorf("from a timer: %+v", j)
	}
	if got := fmt.Sprint(j.Headers); got != fmt.Sprint([]delivery.Header{
		{Key: "pacer-replayed-from", Value: []byte("dead/1/2")}, {Key: "x-own", Value: []byte("kept")}, {Key: "pacer-new", Value: []byte("kept too")}, {Key: "ce_type", Value: []byte("t")},
	}) {
		t.Errorf("headers kept: %s", got)
	}
	own := delivery.Origin{Topic: "jobs", Partition: 3, Offset: 42}
	pairs = slices.DeleteFunc(pairs, func(s string) bool { return s == "pacer-new" || s == "kept too" })
	j = Decode(rec("", pairs...), delivery.FromIngress, limits, readAt)
	if j.Attempt != 0 || j.Hops+j.TimerHops != 0 || j.Origin != own || j.Reason != "" || j.EnqueuedAt != 0 || !j.Due.IsZero() ||
		!j.FirstRead.Equal(readAt) || !j.Published.Time().Equal(readAt.Add(-time.Minute)) || len(j.Headers) != 3 || j.Flaw != nil {
		t.Errorf("from ingress: %+v", j)
	}
	for _, bad := range []string{"", "a", "a/b", "a/1/x", "a/-1/2", "/1/2", "a/1/-2"} {
		j = Decode(rec("", "pacer-campaign", "c", "pacer-origin", bad, "pacer-attempt", "-1", "pacer-hops", "x",
			"pacer-enqueued-at", "soon"), delivery.FromLane, limits, readAt)
		if j.Origin != own || j.Attempt != 0 || j.Hops != 0 || j.EnqueuedAt != delivery.StampOf(readAt.Add(-time.Minute)) || j.Flaw != nil {
			t.Errorf("origin %q: %+v", bad, j)
		}
	}
}

// A record that a producer wrote into a lane itself is a job like any other: it counts from its writing, however often the lane is read,
// and has no history.
func TestDecodeDirect(t *testing.T) {
	j := Decode(rec("", "pacer-campaign", "c"), delivery.FromLane, limits, readAt)
	if j.ID != "jobs/3/42" || j.Origin != (delivery.Origin{Topic: "jobs", Partition: 3, Offset: 42}) || j.Flaw != nil ||
		j.Attempt != 0 || j.Hops+j.TimerHops != 0 || !j.FirstRead.Equal(readAt.Add(-time.Minute)) || !j.Due.IsZero() {
		t.Errorf("%+v", j)
	}
	again := Decode(rec("", "pacer-campaign", "c"), delivery.FromLane, limits, readAt.Add(time.Hour))
	if !again.FirstRead.Equal(j.FirstRead) {
		t.Errorf("first read at %s, later at %s", j.FirstRead, again.FirstRead)
	}
	for name, written := range map[string]time.Time{
		"a clock ahead": readAt.Add(time.Hour), "no time": time.UnixMilli(-1), "none at all": {},
	} {
		r := rec(`{"campaign":"c","payload":1}`)
		r.Time = written
		if j = Decode(r, delivery.FromLane, limits, readAt); !j.FirstRead.Equal(readAt) || j.Campaign != "c" {
			t.Errorf("%s: first read at %s, %+v", name, j.FirstRead, j)
		}
	}
}

// A record that cannot be read keeps everything its producer wrote, so that its dead letter is whole.
func TestDecodeKeepsWhatItCannotRead(t *testing.T) {
	r := rec("body", "pacer-campaign", "c", "pacer-weight", "two", "x", "y", "pacer-attempt", "9")
	r.Key = []byte("key")
	j := Decode(r, delivery.FromIngress, limits, readAt)
	if j.Defect() != delivery.ReasonInvalidHeader || j.Campaign != "c" || string(j.Payload) != "body" || string(j.Key) != "key" {
		t.Errorf("%+v", j)
	}
	if len(j.Headers) != 3 || string(j.Headers[1].Value) != "two" {
		t.Errorf("headers %v", j.Headers)
	}
	const broken = `{"campaign":"c","payload":1,"weight":"2"}`
	if j = Decode(rec(broken), delivery.FromIngress, limits, readAt); string(j.Payload) != broken || j.Campaign != "c" {
		t.Errorf("%+v", j)
	}
}

// checkDecoded: whatever a producer writes, decode gives a job with an id, a sane weight, and its payload or a defect. The dead letter of what
// cannot be read has all that was written.
func checkDecoded(t interface{ Fatalf(string, ...any) }, r *delivery.Record, place delivery.Place) {
	named := slices.ContainsFunc(r.Headers, func(h delivery.Header) bool { return h.Key == delivery.HeaderCampaign })
	j := Decode(r, place, limits, readAt)
	switch {
	case !delivery.ValidID(j.ID) && len(r.Topic) < 200:
		t.Fatalf("id %q", j.ID)
	case j.Size < Overhead+int64(len(r.Value)):
		t.Fatalf("size %d", j.Size)
	case j.Flaw != nil && (j.Flaw.Detail == "" || len(j.Flaw.Detail) > 1000):
		t.Fatalf("a detail of %d bytes: %.2000q", len(j.Flaw.Detail), j.Flaw.Detail)
	case unread(j) && !bytes.Equal(j.Payload, r.Value):
		t.Fatalf("%s, and the payload is %q", j.Flaw.Detail, j.Payload)
	case j.Flaw == nil && (!delivery.ValidID(j.Campaign) || j.Weight < 1 || j.Weight > limits.MaxWeight || !bytes.Contains(r.Value, j.Payload)):
		t.Fatalf("%q becomes %s", r.Value, shape(j))
	case j.Flaw == nil && !named && (!json.Valid(r.Value) || !json.Valid(j.Payload)):
		t.Fatalf("%q was taken for an envelope", r.Value)
	}
	p := new(Decoder).Peek(r, place, limits, readAt)
	if p.Campaign != j.Campaign || p.Destination != j.Destination || p.Retrying() != j.Retrying() || !p.ReadyAt().Equal(j.ReadyAt()) ||
		p.From != j.From || p.Offset != j.Offset {
		t.Fatalf("counted as %s, and decoded as %s", shape(p), shape(j))
	}
}

func TestDecodeAnything(t *testing.T) {
	keys := []string{
		"pacer-campaign", "pacer-job-id", "pacer-weight", "pacer-priority", "pacer-not-before", "content-type", "ce_id",
		"traceparent", "pacer-origin", "pacer-attempt", "pacer-enqueued-at", "pacer-destination", "pacer-due", "pacer-reason", "x",
	}
	known := rapid.SampledFrom([]string{"c", "5", "high", "in/1/2", "retry", "2026-11-21T12:00:00Z"})
	header := rapid.OneOf(rapid.String(), known, known, known)
	rapid.Check(t, func(rt *rapid.T) {
		r := rec(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`{"campaign":"c","payload":[1]}`, `{}`})).Draw(rt, "value"))
		for range rapid.IntRange(0, 9).Draw(rt, "headers") {
			r.Headers = append(r.Headers, delivery.Header{
				Key:   rapid.SampledFrom(keys).Draw(rt, "key"),
				Value: []byte(header.Draw(rt, "header")),
			})
		}
		checkDecoded(rt, r, delivery.Place(rapid.IntRange(0, 2).Draw(rt, "place")))
	})
}

// FuzzDecode: no record panics, or costs memory out of proportion to its length.
func FuzzDecode(f *testing.F) {
	for _, value := range []string{
		``, `{}`, `[]`, `{"campaign":"c","payload":{}}`, `{"campaign":"c","payload":{"a":[1,2,{"b":null}]}}`, `{"campaign":"c","payload":1}{}`,
		`{"campaign":1,"payload":2}`, `{"campaign":"c","CAMPAIGN":"d","payload":[1,{"a":"\u0041"}],"weight":2,"weight":null}`,
		`{"campaign":"\u0063","id":"\ud800","weight":1e9,"payload":""}`, `{"campaign":"c","id":null,"priority":"high","not_before":"2026-11-21T12:00:00Z","payload":0}`,
		`{"campaign":"c","campaign":"d","payload":1,"x":` + strings.Repeat("[", 50), `{"Campaign":"c"}`, strings.Repeat(`{"campaign":`, 20),
	} {
		f.Add([]byte(value), "", "")
	}
	f.Add([]byte("x"), "pacer-campaign", "c")
	f.Add([]byte("x"), "Pacer_Not-Before", "c")
	f.Fuzz(func(t *testing.T, value []byte, key, header string) {
		r := rec(string(value))
		if key != "" {
			r.Headers = []delivery.Header{{Key: key, Value: []byte(header)}}
		}
		checkDecoded(t, r, delivery.FromIngress)
	})
}

// A record that could not be read as a whole becomes a dead letter with what is known of it, which is never replayed.
func TestDecodeWhatCouldNotBeRead(t *testing.T) {
	flaw := &delivery.Flaw{Defect: delivery.ReasonTooLarge, Detail: "too large", Lost: 20 << 20}
	for _, headers := range [][]delivery.Header{
		nil, {{Key: delivery.HeaderCampaign, Value: []byte("c")}, {Key: delivery.HeaderJobID, Value: []byte("id")}, {Key: "x", Value: []byte("y")}},
	} {
		j := Decode(&delivery.Record{Topic: "jobs", Offset: 7, Headers: slices.Clone(headers), Flaw: flaw}, delivery.FromIngress, Limits{MaxWeight: 1}, time.Now())
		if j.Flaw != flaw || j.Payload != nil || j.Origin.Offset != 7 || headers != nil && (j.Campaign != "c" || j.ID != "id") {
			t.Errorf("job %+v", j)
		}
		letter := new(Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToDead, Reason: flaw.Defect, Detail: flaw.Detail}, time.Now())
		if letter.Value != nil || letter.Header(HeaderTruncated) != "20971520" || letter.Header(delivery.HeaderOrigin) != "jobs/0/7" ||
			letter.Header(delivery.HeaderReason) != "too_large" || headers != nil && letter.Header("x") != "y" {
			t.Errorf("letter %+v", letter)
		}
	}
}

// TestTheLastYear: a time that is accepted survives its way through a lane. In UTC, one of the year 9999 may be one of the year 10000, which has no
// notation.
func TestTheLastYear(t *testing.T) {
	for _, header := range []string{delivery.HeaderExpiresAt, delivery.HeaderNotBefore} {
		for at, valid := range map[string]bool{"9999-12-31T23:59:59-05:00": false, "9999-12-31T23:59:59Z": true} {
			j := Decode(rec("p", "pacer-campaign", "c", header, at), delivery.FromIngress, Limits{MaxWeight: 1}, readAt)
			lane := new(Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToLane}, readAt)
			again := Decode(&lane, delivery.FromLane, Limits{MaxWeight: 1}, readAt)
			if (j.Flaw == nil) != valid || valid && again.Flaw != nil {
				t.Errorf("%s %s: %s, then %s", header, at, shape(j), shape(again))
			}
		}
	}
}

// TestHeadersAreCharged: a compressed record of a few kilobytes may have a million of them.
func TestHeadersAreCharged(t *testing.T) {
	r := rec("p", "pacer-campaign", "c")
	r.Headers = append(r.Headers, make([]delivery.Header, 1_000_000)...)
	j := Decode(r, delivery.FromIngress, limits, readAt)
	if takes := int64(cap(j.Headers)) * int64(unsafe.Sizeof(delivery.Header{})); takes > j.Size {
		t.Errorf("the headers of the job take %d bytes, and %d are charged to the budget", takes, j.Size)
	}
}
