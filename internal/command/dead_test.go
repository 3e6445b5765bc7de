package command

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

func TestMoments(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"2h":                        now.Add(-2 * time.Hour),
		"7d":                        now.Add(-7 * 24 * time.Hour),
		"2026-11-30T09:00:00Z":      time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
		"2026-11-30T12:00:00+03:00": time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
	} {
		if got, err := parseMoment("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestPlaces(t *testing.T) {
	for text, ok := range map[string]bool{
		"3/17": true, "0/0": true, "3": false, "3/": false, "/17": false, "-1/2": false, "3/17/4": false, "a/3": false,
		"99999999999/1": false, "spring-0": false,
	} {
		place, got := view.ParsePlace(text)
		if got != ok || ok && place.String() != text {
			t.Errorf("%q: %v, %v", text, place, got)
		}
	}
}

func TestNothingSteersTheTerminal(t *testing.T) {
	for s, want := range map[string]string{
		"plain text":        "plain text",
		"ключ 鍵":            "ключ 鍵",
		"\x1b[31mred\x07":   `\x1b[31mred\a`,
		"a\u202eb\u0085c":   `a\u202eb\u0085c`,
		"bad \xff byte":     `bad \xff byte`,
		"a real \ufffd one": "a real \ufffd one",
		"two\nlines":        `two\nlines`,
	} {
		if got := visible(s); got != want {
			t.Errorf("%q is shown as %q, want %q", s, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := deadletter.Letter{
			Campaign: string(rapid.SliceOf(rapid.Byte()).Draw(t, "campaign")), JobID: rapid.String().Draw(t, "job"),
			Detail: rapid.String().Draw(t, "detail"), Answer: rapid.String().Draw(t, "answer"), Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Headers: []delivery.Header{{Key: rapid.String().Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}},
		}
		var out bytes.Buffer
		p := &printer{w: &out}
		whole := deadWhole{WholeLetter: *view.WholeLetterOf(&d, "")}
		writeDead(p, &whole)
		if err := printDead(p, false, true, view.WholeLetterOf(&d, "").Letter); err != nil || p.err != nil {
			t.Fatal(err, p.err)
		}
		for _, b := range []byte(strings.ReplaceAll(out.String(), "\t", "")) {
			if b < ' ' && b != '\n' || b == 0x7f {
				t.Fatalf("byte %#x reaches the terminal: %q", b, out.String())
			}
		}
	})
}

func TestPayloadsAreShownAndBounded(t *testing.T) {
	for _, c := range []struct {
		payload string
		cut     int
		has     []string
	}{
		{"{\"a\":1}\nsecond", 0, []string{"14 bytes", "  {\"a\":1}\n  second\n"}},
		{strings.Repeat("я", 3000), 0, []string{"6000 bytes", "… 1904 more bytes; --payload"}},
		{"\x00\x01binary" + strings.Repeat("\xff", 300), 0, []string{"00 01 62 69 6e 61 72 79", "… 52 more bytes"}},
		{"", 400_000, []string{"0 bytes; 400000 could not be read"}},
		{"", 0, []string{"payload     0 bytes"}},
	} {
		var out bytes.Buffer
		showPayload(&printer{w: &out}, view.WholeLetterOf(&deadletter.Letter{Payload: []byte(c.payload), Truncated: c.cut, Bytes: len(c.payload) + c.cut}, ""))
		contains(t, out.String(), c.has...)
	}
}

func TestCountsOfDeadLetters(t *testing.T) {
	counts := deadCounts{}
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		counts.add(&view.Letter{
			Campaign: []string{"spring", "autumn"}[i%2], Reason: string(delivery.ReasonRefused), Replayed: i == 0,
			At: noon.Add(time.Duration(i) * time.Minute),
		})
	}
	var out bytes.Buffer
	(&printer{w: &out}).table(func(p *printer) { counts.print(p, "all") })
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	want := "[[CAMPAIGN REASON LETTERS REPLAYED OLDEST NEWEST] " +
		"[autumn refused 2 0 2026-12-01T12:01:00Z 2026-12-01T12:03:00Z] " +
		"[spring refused 3 1 2026-12-01T12:00:00Z 2026-12-01T12:04:00Z] [all 5 1]]"
	if fmt.Sprint(rows) != want {
		t.Errorf("counts\n%s", out.String())
	}
	for i := range maxDeadGroups + 5 {
		counts.add(&view.Letter{Campaign: fmt.Sprint(i)})
	}
	if others := counts[deadletter.Group{Campaign: "(others)"}]; others == nil || others.Letters != 7 {
		t.Errorf("%d groups, others %+v", len(counts), others)
	}
}

// newCemetery is a Kafka with these dead letters of one campaign, refused.
func newCemetery(t *testing.T, letters int) *publisher {
	t.Helper()
	p := newPublisher(t, kfake.SeedTopics(1, "pacer.dead", "pacer.replays"))
	client := try(broker.New(broker.Options{Brokers: p.kafka.ListenAddrs()}))(t)
	defer client.Close()
	records := make([]delivery.Record, 0, letters)
	for i := range letters {
		j := &delivery.Job{ID: "u-" + strconv.Itoa(i), Campaign: "spring", Weight: 1, Payload: []byte("payload")}
		records = append(records, new(record.Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonRefused}, time.Now()))
	}
	try(broker.NewProducer(broker.ProducerOptions{Client: client}).Publish(t.Context(), "pacer.dead", broker.All(records), nil))(t)
	p.environ = append(p.environ, "PACER_KAFKA_TOPICS=pacer.jobs")
	return p
}

// Letters beyond the limit are not counted, so no count may claim to be complete.
func TestCountsOfDeadLettersWithALimit(t *testing.T) {
	p := newCemetery(t, 9)
	if letters := read[[]view.Letter](p.desk, "dead list"); len(letters) != 9 || letters[0].JobID == letters[1].JobID {
		t.Errorf("%+v", letters)
	}
	for _, step := range [][2]string{
		{"dead list", "all 9 0"},
		{"dead list --limit 10 --count", "all 9 0"},
		{"dead list --limit 2", "newest 2 2 0"},
		{"dead list --limit 2 --count", "newest 2 2 0"},
		{"dead replay --dry-run", "9 dead letters match, 9 would be replayed"},
	} {
		p.fields(p.run(step[0]), step[1])
	}
	p.shows("dead replay --limit 5", "at least 5 dead letters match, 5 replayed in ")
	p.shows("dead replay --limit 5", "9 dead letters match, 4 replayed in ")
}

func TestOversizeLettersAreNamedOnOneLine(t *testing.T) {
	if err := oversizeError(&deadletter.ReplayReport{Replayed: 5}); err != nil {
		t.Error(err)
	}
	report := deadletter.ReplayReport{Oversize: 3, Oversized: []deadletter.OversizeLetter{
		{Place: "3/17", Topic: "jobs", Bytes: 1_048_700},
		{Place: "0/4", Topic: "other", Bytes: 2_000_000},
	}}
	err := oversizeError(&report)
	want := "replay: 3 left out: larger than max.message.bytes of their topic: 3/17 (1048700 bytes, for jobs), " +
		"0/4 (2000000 bytes, for other), and 1 more; raise it and replay again"
	if err == nil || err.Error() != want || ExitCode(err) != 1 {
		t.Errorf("%v, exit code %d", err, ExitCode(err))
	}
}
