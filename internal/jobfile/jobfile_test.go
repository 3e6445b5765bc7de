package jobfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

func source(t *testing.T, format Format, pairs ...string) *Source {
	t.Helper()
	m, err := ParseMap(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return &Source{Campaign: "spring", Format: format, Map: m, Prefix: "abc", Limits: record.Limits{MaxWeight: 10}}
}

// read returns the jobs as "id payload headers…", and the errors.
func read(s *Source, r io.Reader) (jobs, problems []string) {
	for e, err := range s.Jobs(r) {
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		jobs = append(jobs, describe(e))
	}
	return jobs, problems
}

func describe(r delivery.Record) string {
	words := []string{r.Header(delivery.HeaderJobID), string(r.Value)}
	for _, h := range r.Headers {
		if h.Key != delivery.HeaderJobID && h.Key != delivery.HeaderCampaign {
			words = append(words, fmt.Sprintf("%s=%s", h.Key, h.Value))
		}
	}
	return strings.Join(words, " ")
}

const (
	asJSON   = " content-type=application/json"
	asBinary = " content-type=application/octet-stream"
)

func TestJobsOfFiles(t *testing.T) {
	full := strings.Repeat("x", MaxEntry)
	for _, tc := range []struct {
		name, input string
		format      Format
		pairs       []string
		jobs        []string
		problems    []string // parts of them
	}{
		{"nothing", "", Lines, nil, nil, nil},
		{"lines of both kinds, empty ones, none at the end", "{\"a\":1}\r\n\nb\n\r\nc", Lines, nil,
			[]string{`abc-1 {"a":1}` + asJSON, "abc-3 b" + asBinary, "abc-5 c" + asBinary}, nil},
		{"the longest line", "a\n" + full + "\r\nb\n", Lines, nil, []string{"abc-1 a" + asBinary, "abc-2 " + full + asBinary, "abc-3 b" + asBinary}, nil},
		{"too long by one", "a\n" + full + "x\nb\n", Lines, nil, []string{"abc-1 a" + asBinary}, []string{"line 2 is longer than"}},
		{"endless", "a\nb\n" + full + full + full, Lines, nil, []string{"abc-1 a" + asBinary, "abc-2 b" + asBinary}, []string{"line 3 is longer than"}},
		{"mapped keys", "\xef\xbb\xbf" + `{"key":"u-1","body":{"n":12345678901234567890},"units":2,"at":"2026-12-01T09:00:00Z"}` + "\n" +
			`{"key":42,"body":"text","units":null}`, Lines, []string{"id=key", "payload=body", "weight=units", "not_before=at"},
			[]string{`u-1 {"n":12345678901234567890}` + asJSON + " pacer-not-before=2026-12-01T09:00:00Z pacer-weight=2", `42 "text"` + asJSON}, nil},
		{"what is wrong with mapped keys", "{\"key\":\"u 1\"}\n[1]\nnull\n{}\n{\"key\":{}}\n{\"key\":true}\n{\"key\":\"ok\"}\n{\"key\":\"u\",\"w\":\"11\"}\n{\"key\":\"u\",\"w\":\"x\"}",
			Lines, []string{"id=key", "weight=w"}, []string{`ok {"key":"ok"}` + asJSON}, []string{
				`line 1 has a bad id: "key" must be 1 to 256`, "line 2 is not a JSON object", "line 3 is not a JSON object",
				`line 4 has no "key", the id of its job`, `line 5 has a "key" that is neither`, `line 6 has a "key" that is neither`,
				`line 8 has a bad weight: "w" 11 is above max_weight 10`, `line 9 has a bad weight: "w" must be an integer from 1 to 10`,
			}},
		{"a table", "\xef\xbb\xbf\"id\",text,n\r\n1,\"a,\n\"\"b\"\"\",<5\r\n\r\n2,c,\r\n", CSV, nil,
			[]string{`abc-2 {"id":"1","text":"a,\n\"b\"","n":"<5"}` + asJSON, `abc-5 {"id":"2","text":"c","n":""}` + asJSON}, nil},
		{"a mapped table", "key,body,prio\nu-1,hello,high\nu-2,\"{\"\"a\"\":1}\",\n,x,\nu-4,,\nu-5,x,low\nu-6,x\nu-7,x,normal", CSV,
			[]string{"id=key", "payload=body", "priority=prio"},
			[]string{"u-1 hello" + asBinary + " pacer-priority=high", `u-2 {"a":1}` + asJSON, "u-7 x" + asBinary + " pacer-priority=normal"},
			[]string{`line 4 has no "key"`, `line 5 has no "body", the payload`, `line 6 has a bad priority: "prio" must be high or normal`,
				"line 7 has 2 cells, and the first line names 3 columns"}},
		{"local times", strings.Repeat("{\"at\":\"soon\",\"zone\":\"UTC\"}\n", 3), Lines, []string{"not_before_local=at", "time_zone=zone"}, nil,
			slices.Repeat([]string{` has a bad not_before_local: "at" must be a time without a zone`}, 3)},
		{"mapped headers", "{\"to\":\"shop-7\",\"who\":\"a b\",\"sub\":{\"endpoint\":\"x\"},\"type\":\"text/plain\"}\n{\"to\":null,\"who\":7}\n{\"to\":[1],\"who\":1}\n{\"to\":\"a b\"}", Lines,
			[]string{"destination=to", "header.tenant=who", "header.subscription=sub", "header.content-type=type", "payload=who"},
			[]string{`abc-1 "a b" content-type=text/plain pacer-destination=shop-7 subscription={"endpoint":"x"} tenant=a b`, "abc-2 7" + asJSON + " tenant=7"},
			[]string{`line 3 has a "to" that is neither`, `line 4 has no "who", the payload of its job`}},
		{"mapped headers of a table", "shop,who\nshop-7,blue\n,\n\"a b\",x\n", CSV, []string{"destination=shop", "header.tenant=who"},
			[]string{`abc-2 {"shop":"shop-7","who":"blue"}` + asJSON + " pacer-destination=shop-7 tenant=blue", `abc-3 {"shop":"","who":""}` + asJSON},
			[]string{`line 4 has a bad destination: "shop"`}},
		{"no such column for a header", "a,b\n1,2\n", CSV, []string{"header.x=key"}, nil, []string{`line 1 names no column "key", the header.x of --map; it names a, b`}},
		{"no such column", "a,b\n1,2\n", CSV, []string{"id=key"}, nil, []string{`line 1 names no column "key", the id of --map; it names a, b`}},
		{"a column twice", "a,a\n1,2\n", CSV, nil, nil, []string{`line 1 names the column "a" twice`}},
		{"an empty table", "", CSV, []string{"id=key"}, nil, nil},
		{"quotes that do not fit", "a\nx\n\"y\"z\nw\n", CSV, nil, []string{`abc-2 {"a":"x"}` + asJSON}, []string{"line 3 has quotes that do not fit"}},
		{"quotes that do not end", "a\nx\n\"y\n" + full + full, CSV, nil, []string{`abc-2 {"a":"x"}` + asJSON}, []string{"line 3 is longer than"}},
	} {
		jobs, problems := read(source(t, tc.format, tc.pairs...), strings.NewReader(tc.input))
		if !slices.Equal(jobs, tc.jobs) {
			t.Errorf("%s: jobs %.300q, want %.300q", tc.name, jobs, tc.jobs)
		}
		if !slices.EqualFunc(problems, tc.problems, strings.Contains) {
			t.Errorf("%s: problems %q, want %q", tc.name, problems, tc.problems)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestALineThatCannotBeReadIsNamed(t *testing.T) {
	for _, format := range []Format{Lines, CSV} {
		_, problems := read(source(t, format), io.MultiReader(strings.NewReader("a\nb\n"), failing{}))
		if len(problems) != 1 || !strings.Contains(problems[0], "line 3 cannot be read: disk on fire") {
			t.Errorf("%s: %q", format, problems)
		}
	}
}

func TestAFileIsCheckedAsAWhole(t *testing.T) {
	s := source(t, Lines, "id=key")
	text := strings.Repeat("{\"key\":\"a\"}\nx\n", 30)
	found, err := s.Check(t.Context(), strings.NewReader(text))
	if err != nil || found.Jobs != 30 || found.Bad != 30 || len(found.First) != maxBad || found.First[1].Line != 4 {
		t.Errorf("%+v, %v", found, err)
	}
	other, err := s.Check(t.Context(), strings.NewReader(text+" "))
	if err != nil || len(found.Hash) != 64 || other.Hash == found.Hash {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := s.Check(t.Context(), io.MultiReader(strings.NewReader(text), failing{})); err == nil {
		t.Error("a file that cannot be read is not faulty")
	}
}

func TestCheckpoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.checkpoint")
	s := source(t, CSV, "id=key")
	key := s.Key("ab")
	now, err := ReadCheckpoint(path, key)
	if err != nil || *now != (Checkpoint{Of: key}) {
		t.Fatalf("%+v, %v", now, err)
	}
	now.Jobs = 7
	if err := now.Write(path); err != nil {
		t.Fatal(err)
	}
	if before, err := ReadCheckpoint(path, key); err != nil || *before != *now {
		t.Fatalf("%+v, %v", before, err)
	}
	for what, change := range map[string]func(*Source){
		"campaign": func(s *Source) { s.Campaign = "autumn" }, "format": func(s *Source) { s.Format = Lines },
		"map": func(s *Source) { s.Map = nil }, "headers": func(s *Source) { s.Headers = []delivery.Header{{Key: "tenant"}} },
	} {
		other := *s
		change(&other)
		if other.Key("ab") == key || s.Key("cd") == key {
			t.Errorf("another %s, or another content, has the same key", what)
		}
	}
	for _, text := range []string{"", "{}", "[1]", `{"of":"` + key + `","jobs":-1}`, `{"of":"ab","jobs":1}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := ReadCheckpoint(path, key); err == nil || !strings.Contains(err.Error(), "is of another content") {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	if err := now.Write(filepath.Join(path, "nowhere")); err == nil {
		t.Error("it was written nowhere")
	}
}

func TestMapsAndFormats(t *testing.T) {
	for text, says := range map[string]string{
		"payload": "must be FIELD=COLUMN", "payload=": "must be FIELD=COLUMN", "body=payload": `"body" is not a field of a job; use one of payload, id`,
		"id=a id=b": "id is given twice", "weight=w id=a": "",
	} {
		m, err := ParseMap(strings.Fields(text))
		if says == "" && (err != nil || fmt.Sprint(m) != "map[id:a weight:w]") || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v, %v", text, m, err)
		}
	}
	for name, want := range map[string]Format{"a.csv": CSV, "A.CSV": CSV, "csv": Lines, "a.jsonl": Lines, "-": Lines} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestHeadersOfEveryJob: those of a line are stronger, and what a daemon would not take is refused at once.
func TestHeadersOfEveryJob(t *testing.T) {
	s := source(t, Lines, "destination=to", "header.tenant=who")
	var err error
	if s.Headers, err = ParseHeaders([]string{"pacer-destination=shop-1", "tenant=a=b, c", "content-type=text/plain"}); err != nil || s.HeadersProblem() != "" {
		t.Fatal(err, s.HeadersProblem())
	}
	jobs, problems := read(s, strings.NewReader("{}\n{\"to\":\"shop-2\",\"who\":\"x\"}\n"))
	want := []string{
		"abc-1 {} content-type=text/plain pacer-destination=shop-1 tenant=a=b, c",
		`abc-2 {"to":"shop-2","who":"x"} content-type=text/plain pacer-destination=shop-2 tenant=x`,
	}
	if !slices.Equal(jobs, want) || len(problems) > 0 {
		t.Errorf("%q, %q", jobs, problems)
	}
	for pair, problem := range map[string]string{
		"tenant": "NAME=VALUE", "tenant=": "NAME=VALUE", "=x": "is no name", "a b=x": "is no name", "x=" + strings.Repeat("y", maxHeaderText+1): "NAME=VALUE",
		"pacer-job-id=u-1": "is a header of pacer's; of these, set pacer-destination, ", "Pacer-Hops=1": "is a header of pacer's",
		"pacer-weight=11": "above max_weight 10", "pacer-not-before=soon": "pacer-not-before",
	} {
		s.Headers, err = ParseHeaders([]string{pair})
		if said := fmt.Sprint(err, s.HeadersProblem()); !strings.Contains(said, problem) {
			t.Errorf("%.50s: %.200s", pair, said)
		}
	}
	if _, err := ParseHeaders([]string{"a=1", "a=2"}); err == nil {
		t.Error("a header was taken twice")
	}
	for _, pair := range []string{"header.=x", "header.pacer-weight=x", "header.a b=x"} {
		if _, err := ParseMap([]string{pair}); err == nil {
			t.Errorf("--map %s was taken", pair)
		}
	}
}
