package record

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestFlaws: what a producer meant for pacer and wrote in another way is a flaw. Ignored, it would send a job too early, too heavy, or to another
// campaign. A job that must wait longer than max_not_before would circulate in the timers for years.
func TestFlaws(t *testing.T) {
	useHeaders := "is not one of pacer's headers; use one of " + knownHeaders
	useKeys := "is not a key of an envelope; use one of " + knownKeys
	const (
		zones = "must be the name of a time zone, such as Asia/Yekaterinburg or UTC"
		local = "must be a time without a zone, such as 2006-01-02T15:04"
		bytes = "must have 1 to 256 bytes"
		far   = "is further ahead than max_not_before (90d)"
		years = "9999-12-31T00:00:00Z"
	)
	edge, long := readAt.Add(limits.MaxNotBefore), strings.Repeat("x", 257)
	beyond := edge.Add(time.Second).Format(time.RFC3339)
	header := func(pairs ...string) *delivery.Record {
		return rec("p", append([]string{"pacer-campaign", "c"}, pairs...)...)
	}
	many, inEnvelope := tooManyKeys()
	envelope := func(more string) *delivery.Record { return rec(`{"campaign":"c","payload":1,` + more + `}`) }
	for _, c := range []struct {
		rec      *delivery.Record
		campaign string
		detail   string
	}{
		{header("pacer-not-befor", "x"), "c", `"pacer-not-befor" ` + useHeaders},
		{header("Pacer-Not-Before", "x"), "c", `"Pacer-Not-Before" ` + useHeaders},
		{header("PACER-WEIGHT", "1"), "c", `"PACER-WEIGHT" ` + useHeaders},
		{header("pacer_not_before", "x"), "c", `"pacer_not_before" ` + useHeaders},
		{header("pacerNotBefore", "x"), "c", `"pacerNotBefore" ` + useHeaders},
		{header("pacer-tenant", "x"), "c", `"pacer-tenant" ` + useHeaders},
		{header("pacer-", "x"), "c", `"pacer-" ` + useHeaders},
		{header("pacer-\n\x1b[2J", "x"), "c", `"pacer-\n\x1b[2J" ` + useHeaders},
		{rec("hello", "Pacer-Campaign", "c"), "", `"Pacer-Campaign" ` + useHeaders},
		{header("pacer-weight", "1", "pacer-weight", "1"), "c", "pacer-weight must be there once"},
		{header("pacer-weight", "", "pacer-weight", "1"), "c", "pacer-weight must be there once"},
		{rec("p", "pacer-campaign", "a", "pacer-campaign", "b"), "b", "pacer-campaign must be there once"},
		{rec("p", "pacer-campaign", "(unknown)"), "", "pacer-campaign must not be (unknown), which stands for jobs without a campaign"},
		{envelope(`"notBefore":"9999-01-01T00:00:00Z"`), "c", `"notBefore" ` + useKeys},
		{envelope(`"Weight":3`), "c", `"Weight" ` + useKeys},
		{envelope(`"tenant":3`), "c", `"tenant" ` + useKeys},
		{envelope(`"":3`), "c", `"" ` + useKeys},
		{rec(`{"campaign":"allowed","CAMPAIGN":"victim","payload":1}`), "allowed", `"CAMPAIGN" ` + useKeys},
		{rec(`{"campaign":"a","c\u0061mpaign":"b","payload":1}`), "a", "campaign must be there once"},
		{envelope(`"weight":null,"weight":2`), "c", "weight must be there once"},
		{rec(`{"campaign":"(unknown)","payload":1}`), "", "campaign must not be (unknown), which stands for jobs without a campaign"},
		{rec(`{"campaign":"c","payload":1}`, "Pacer-Weight", "2"), "c", `"Pacer-Weight" ` + useHeaders},

		{header("pacer-time-zone", "Mars/Olympus"), "c", "pacer-time-zone " + zones},
		{header("pacer-time-zone", "+05:00"), "c", "pacer-time-zone " + zones},
		{header("pacer-time-zone", ""), "c", "pacer-time-zone " + zones},
		{envelope(`"time_zone":"MSK"`), "c", "time_zone " + zones},
		{header("pacer-time-zone", "UTC", "pacer-not-before-local", "2026-12-01T10:00Z"), "c", "pacer-not-before-local " + local},
		{header("pacer-time-zone", "UTC", "pacer-not-before-local", "2026-02-30T10:00"), "c", "pacer-not-before-local " + local},
		{header("pacer-not-before-local", "2026-12-01T10:00"), "c",
			"pacer-not-before-local needs the zone of the recipient; give pacer-time-zone, in an envelope time_zone"},
		{header("pacer-time-zone", "UTC", "pacer-not-before-local", "2026-12-01T10:00", "pacer-not-before", "2026-12-01T10:00:00Z"), "c",
			"pacer-not-before-local excludes pacer-not-before; give one of them"},
		{header("pacer-time-zone", "UTC", "pacer-not-before-local", "2028-12-01T10:00"), "c", "pacer-not-before-local 2028-12-01T10:00 " + far},
		{header("pacer-not-before", years), "c", "pacer-not-before " + years + " " + far},
		{envelope(`"not_before":"` + years + `"`), "c", "not_before " + years + " " + far},
		{header("pacer-not-before", beyond), "c", "pacer-not-before " + beyond + " " + far},

		{header("pacer-key-Chat", "42"), "c", `"pacer-key-Chat" must end in the name of a key: 1 to 32 lower-case letters, digits and dashes`},
		{header("pacer-key-chat", "1", "pacer-key-chat", "2"), "c", "pacer-key-chat must be there once"},
		{header("pacer-key-chat", ""), "c", "pacer-key-chat " + bytes},
		{header("pacer-key-chat", long), "c", "pacer-key-chat " + bytes},
		{header("pacer-key-destination", "x"), "c", "pacer-key-destination is not needed: the key is the job's pacer-destination"},
		{envelope(`"keys":{"chat":42}`), "c", "keys must be an object of strings"},
		{envelope(`"keys":{"chat":"` + long + `"}`), "c", "pacer-key-chat " + bytes},
		{envelope(`"keys":{},"keys":{}`), "c", "keys must be there once"},
		{rec("p", many...), "c", "pacer-key-NAME must be there at most 16 times"},
		{envelope(`"keys":{` + inEnvelope + `}`), "c", "pacer-key-NAME must be there at most 16 times"},
	} {
		j := Decode(c.rec, delivery.FromIngress, limits, readAt)
		if j.Defect() != delivery.ReasonInvalidHeader || j.Flaw.Detail != c.detail || j.Campaign != c.campaign {
			t.Errorf("%v %s: campaign %q, %s, want %q, %s", c.rec.Headers, c.rec.Value, j.Campaign, shape(j), c.campaign, c.detail)
		}
	}
	for _, name := range []string{"pacer", "pacers-own", "pacer_tenant", "x-pacer-weight", "paced-weight", "PACER", "Pacemaker-weight"} {
		if j := Decode(header(name, "x"), delivery.FromIngress, limits, readAt); j.Flaw != nil || len(j.Headers) != 1 {
			t.Errorf("%s: %s", name, shape(j))
		}
	}
	// The first reading of a job counts, so that each reading says the same.
	first := header("pacer-origin", "jobs/3/1", "pacer-first-read", readAt.Add(-time.Hour).Format(time.RFC3339), "pacer-not-before", edge.Format(time.RFC3339))
	if j := Decode(first, delivery.FromTimer, limits, readAt); j.Defect() != delivery.ReasonInvalidHeader || !strings.Contains(j.Flaw.Detail, far) {
		t.Errorf("read first an hour ago: %s", shape(j))
	}
	if j := Decode(header("pacer-not-before", edge.Format(time.RFC3339)), delivery.FromIngress, limits, readAt); j.Flaw != nil {
		t.Errorf("at the edge: %s", shape(j))
	}
}

// The headers of a record that pacer wrote were judged when the job was first read.
func TestRecordsOfPacerMayHaveUnknownNames(t *testing.T) {
	pairs := []string{"pacer-campaign", "c", "pacer-origin", "jobs/3/1", "pacer-tomorrow", "x", "Pacer-Weight", "2"}
	for from, flawed := range map[delivery.Place]bool{delivery.FromIngress: true, delivery.FromLane: false, delivery.FromTimer: false} {
		if j := Decode(rec("p", pairs...), from, limits, readAt); (j.Flaw != nil) != flawed {
			t.Errorf("place %d: %s", from, shape(j))
		}
	}
	if j := Decode(rec("p", "pacer-campaign", "c", "Pacer-Weight", "2"), delivery.FromLane, limits, readAt); j.Flaw == nil {
		t.Error("a misspelled header of a producer was ignored in a lane")
	}
}

// A record of another format is not read as one of this.
func TestTheFormatIsChecked(t *testing.T) {
	for format, flawed := range map[string]bool{"1": false, "2": true, "": true} {
		for from, counts := range map[delivery.Place]bool{delivery.FromIngress: false, delivery.FromLane: true, delivery.FromTimer: true} {
			j := Decode(rec("p", "pacer-campaign", "c", "pacer-origin", "jobs/3/1", "pacer-format", format), from, limits, readAt)
			if (j.Defect() == delivery.ReasonInvalidHeader) != (flawed && counts) {
				t.Errorf("format %q at place %d: %s", format, from, shape(j))
			}
		}
	}
}

// knownKeys and knownHeaders are what messages name.
var knownKeys, knownHeaders = strings.Join(Keys, ", ") + ", " + keyKeys + ", " + keyPayload, strings.Join(producerHeaders, ", ")

// TestEveryHeaderOfPacerIsKnown: a header that pacer writes must not make the record a flaw where it is read again.
func TestEveryHeaderOfPacerIsKnown(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../delivery/record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{HeaderTruncated: true}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok {
			if name, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(name, "pacer-") && name != "pacer-" {
				names[name] = true
			}
		}
		return true
	})
	if len(names) < 15 {
		t.Fatalf("%d names; the test looks at the wrong thing", len(names))
	}
	for name := range names {
		r := rec("p", "pacer-campaign", "c")
		if name != delivery.HeaderCampaign {
			r.Headers = append(r.Headers, delivery.Header{Key: name, Value: []byte("1")})
		}
		if j := Decode(r, delivery.FromIngress, limits, readAt); j.Flaw != nil && strings.Contains(j.Flaw.Detail, "not one of pacer's") {
			t.Errorf("%s: %s", name, j.Flaw.Detail)
		}
	}
}

// W3C Trace Context says what a traceparent looks like; any other is ignored, and with it the tracestate.
func TestTraceContextIsStrict(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for value, valid := range map[string]bool{
		good: true, "cc" + good[2:]: true, "cc" + good[2:] + "-more": true,
		"": false, "x": false, "zz" + good[2:]: false, "ff" + good[2:]: false, good + "-more": false, "cc" + good[2:] + "more": false,
		strings.ToUpper(good): false, good[:54]: false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x": false,
		"00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01": false, "cc" + good[2:] + "-\n": false,
	} {
		j := Decode(rec("", "pacer-campaign", "c", "traceparent", value, "tracestate", "a=1"), delivery.FromIngress, limits, readAt)
		want := map[bool]string{true: "a=1"}[valid]
		if j.Flaw != nil || (j.TraceParent == value && value != "") != valid || j.TraceState() != want {
			t.Errorf("%q: taken for %q, state %q", value, j.TraceParent, j.TraceState())
		}
	}
}

// An envelope that is a dead letter keeps its campaign, and is still an envelope when it is replayed.
func TestInvalidEnvelopeKeepsItsCampaign(t *testing.T) {
	for value, campaign := range map[string]string{
		`{"campaign":"c","payload":1,"weight":"2"}`: "c", `{"campaign":"c"}`: "c", `{"payload":1,"wait":0,"campaign":"c"}`: "c",
		`{"campaign":"c","payload":1}x`: "c", `{"campaign":"c","payload":`: "c", `{"campaign":"a b","payload":1}`: "", `{"campaign":7,"payload":1}`: "",
		`{"Campaign":"c","payload":1}`: "", `["campaign","c"]`: "",
	} {
		j := Decode(rec(value), delivery.FromIngress, limits, readAt)
		if j.Flaw == nil || j.Campaign != campaign || string(j.Payload) != value {
			t.Errorf("%s: campaign %q, %s", value, j.Campaign, shape(j))
			continue
		}
		letter := new(Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToDead, Reason: j.Defect(), Detail: j.Flaw.Detail}, readAt)
		if letter.Header(delivery.HeaderCampaign) != "" || letter.Header(delivery.HeaderEnvelopeCampaign) != campaign {
			t.Errorf("%s: %v", value, letter.Headers)
		}
		replayed := delivery.Record{Topic: "jobs", Value: letter.Value, Headers: NewLife(letter.Headers)}
		if again := Decode(&replayed, delivery.FromIngress, limits, readAt); again.Flaw == nil || *again.Flaw != *j.Flaw {
			t.Errorf("%s: replayed, it is %s", value, shape(again))
		}
	}
}

// TestHeadersBesideAnEnvelopeCount: a job must not be sent a day early because a header beside its envelope is ignored. What the envelope has as
// well is a flaw, except where pacer wrote the header itself.
func TestHeadersBesideAnEnvelopeCount(t *testing.T) {
	const value, later = `{"campaign":"c","payload":1,"weight":2,"keys":{"to":"a"}}`, "2026-11-22T10:00:00Z"
	j := Decode(rec(value, "pacer-not-before", later, "pacer-job-id", "u-42", "pacer-key-chat", "b"), delivery.FromIngress, limits, readAt)
	if j.Flaw != nil || j.NotBefore.Format(time.RFC3339) != later || j.ID != "u-42" || j.Weight != 2 || j.KeyAt("s", "to") != "a" || j.KeyAt("s", "chat") != "b" {
		t.Errorf("%s", shape(j))
	}
	for _, header := range []string{"pacer-weight", "pacer-key-to"} {
		j := Decode(rec(value, header, "2"), delivery.FromIngress, limits, readAt)
		if j.Defect() != delivery.ReasonInvalidHeader || j.Flaw.Detail != header+" must be there once" || string(j.Payload) != value {
			t.Errorf("%s: %s", header, shape(j))
		}
		j = Decode(rec(value, header, "2", delivery.HeaderReplayedFrom, "pacer.dead/0/1"), delivery.FromIngress, limits, readAt)
		if j.Flaw != nil || j.KeyAt("s", "to") != "a" {
			t.Errorf("%s, replayed: %s", header, shape(j))
		}
	}
}

// tooManyKeys are one more than a job may have, in headers and in an envelope. The first is chat.
func tooManyKeys() (headers []string, inEnvelope string) {
	headers, inEnvelope = []string{"pacer-campaign", "c", "pacer-key-chat", "42"}, `"chat":"42"`
	for i := range delivery.MaxKeys {
		headers, inEnvelope = append(headers, fmt.Sprint("pacer-key-", i), "x"), inEnvelope+fmt.Sprintf(`,"%d":"x"`, i)
	}
	return headers, inEnvelope
}

// TestKeys: a job's keys are in headers of their own, or in an object of an envelope, and stay on its record.
func TestKeys(t *testing.T) {
	many, _ := tooManyKeys()
	for _, r := range []*delivery.Record{
		rec("p", many[:len(many)-2]...), rec("p", "pacer-campaign", "c", "pacer-key-chat", "42"),
		rec(`{"campaign":"c","payload":1,"keys":{"chat":"42","tenant":"a b"}}`),
	} {
		j := Decode(r, delivery.FromIngress, limits, readAt)
		again := new(Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToLane}, readAt)
		for _, j := range []*delivery.Job{j, Decode(&again, delivery.FromLane, limits, readAt)} {
			if j.Flaw != nil || j.KeyAt("sink", "chat") != "42" || j.KeyAt("sink", "other") != "" {
				t.Errorf("%s %v", shape(j), j.Headers)
			}
		}
	}
}

// TestZonesOfRecipients: the zone and the time by its clocks come in headers and envelopes, and stay what they are on every move: no offset is stored.
func TestZonesOfRecipients(t *testing.T) {
	for _, c := range []struct {
		rec           *delivery.Record
		zone, instant string // the instant is "" for none
		header, value string // of the record that is written
	}{
		{rec("p", "pacer-campaign", "c", "pacer-time-zone", "Asia/Yekaterinburg"), "Asia/Yekaterinburg", "", "pacer-time-zone", "Asia/Yekaterinburg"},
		{
			rec("p", "pacer-not-before-local", "2026-12-01T10:00", "pacer-campaign", "c", "pacer-time-zone", "Asia/Yekaterinburg"),
			"Asia/Yekaterinburg", "2026-12-01T05:00:00Z", "pacer-not-before-local", "2026-12-01T10:00:00",
		},
		{
			rec(`{"campaign":"c","payload":1,"not_before_local":"2026-12-01T10:00:07.5","time_zone":"Europe/Berlin"}`),
			"Europe/Berlin", "2026-12-01T09:00:07.5Z", "pacer-not-before-local", "2026-12-01T10:00:07.5",
		},
		{
			rec("p", "pacer-campaign", "c", "pacer-time-zone", "UTC", "pacer-not-before-local", "2026-12-01T10:00"),
			"UTC", "2026-12-01T10:00:00Z", "pacer-not-before-local", "2026-12-01T10:00:00",
		},
		{
			rec("p", "pacer-campaign", "c", "pacer-time-zone", "Europe/Berlin", "pacer-not-before", "2026-12-01T10:00:00+05:00"),
			"Europe/Berlin", "2026-12-01T05:00:00Z", "pacer-not-before", "2026-12-01T05:00:00Z",
		},
	} {
		job := Decode(c.rec, delivery.FromIngress, limits, readAt)
		for range 3 { // moves
			if job.Flaw != nil || job.Zone == nil || job.Zone.String() != c.zone {
				t.Fatalf("%v: %s in %s", c.rec.Headers, shape(job), job.Zone)
			}
			if is := job.NotBefore; c.instant == "" && !is.IsZero() || c.instant != "" && is.UTC().Format(time.RFC3339Nano) != c.instant {
				t.Errorf("%v: not before %s", c.rec.Headers, is)
			}
			written := new(Encoder).Encode(job, delivery.Reroute{Kind: delivery.ToTimer, Reason: delivery.ReasonHours}, readAt)
			written.Headers = slices.Clone(written.Headers)
			if got := written.Header(c.header); got != c.value {
				t.Errorf("%v: %s is written %q", c.rec.Headers, c.header, got)
			}
			if written.Header(delivery.HeaderLocal) != "" && written.Header(delivery.HeaderNotBefore) != "" {
				t.Errorf("%v: %v", c.rec.Headers, written.Headers)
			}
			job = Decode(&written, delivery.FromTimer, limits, readAt)
		}
	}
}
