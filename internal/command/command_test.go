package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

func collect(t *testing.T, r io.Reader) (payloads []string, err error) {
	t.Helper()
	for payload, err := range lines(r) {
		if err != nil {
			return payloads, err
		}
		payloads = append(payloads, string(payload))
	}
	return payloads, nil
}

func TestLinesAreJobs(t *testing.T) {
	full := strings.Repeat("x", maxLine)
	for _, c := range []struct {
		name, input string
		want        []string
		says        string // part of the error
	}{
		{"nothing", "", nil, ""},
		{"line ends of both kinds, empty lines, none at the end", "{\"a\":1}\r\n\nb\n\r\nc", []string{`{"a":1}`, "b", "c"}, ""},
		{"the longest", "a\n" + full + "\nb\n", []string{"a", full, "b"}, ""},
		{"the longest, from elsewhere", full + "\r\nb", []string{full, "b"}, ""},
		{"too long by one", "a\n" + full + "x\nb\n", []string{"a"}, "line 2 is longer"},
		{"endless", "a\nb\n" + full + full + full, []string{"a", "b"}, "line 3 is longer"},
	} {
		got, err := collect(t, strings.NewReader(c.input))
		if len(got) != len(c.want) || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d lines, error %v", c.name, len(got), err)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: line %d is %.20q, want %.20q", c.name, i, got[i], c.want[i])
			}
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestALineThatCannotBeReadIsNamed(t *testing.T) {
	_, err := collect(t, io.MultiReader(strings.NewReader("a\nb\n"), failing{}))
	if err == nil || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), "disk on fire") {
		t.Fatal(err)
	}
}

func TestJobsOfHaveIDsAndContentTypes(t *testing.T) {
	var got []string
	for r, err := range jobsOf("spring", "run", lines(strings.NewReader("{\"a\":1}\nplain\n"))) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, describeRecord(r))
	}
	want := "[pacer-campaign=spring pacer-job-id=run-1 content-type=application/json {\"a\":1} " +
		"pacer-campaign=spring pacer-job-id=run-2 content-type=application/octet-stream plain]"
	if fmt.Sprint(got) != want {
		t.Fatalf("got %v\nwant %s", got, want)
	}
}

func describeRecord(r delivery.Record) string {
	var words []string
	for _, h := range r.Headers {
		words = append(words, h.Key+"="+string(h.Value))
	}
	return strings.Join(append(words, string(r.Value)), " ")
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {ErrNotOK, 1}, {errors.New("broken"), 1}, {context.Canceled, 1}, {catalog.ErrNotFound, 1},
		{config.Usagef("--rate: no"), 2}, {fmt.Errorf("read: %w", config.Usagef("no")), 2}, {fmt.Errorf("set: %w", catalog.ErrInvalid), 2},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestQuotaWindowsAreSpelledAsTheyAreRead(t *testing.T) {
	for _, text := range []string{
		"300/1m,15750/1h", "5/1s:log", "300000/1d:fixed,10/100ms", "1/1d:fixed:day@Europe/Moscow,2/31d:fixed:month",
	} {
		windows, err := parseWindows(strings.Split(text, ","))
		if err != nil {
			t.Fatal(err)
		}
		row := catalog.QuotaRow{}
		for _, w := range windows {
			row.Windows = append(row.Windows, catalog.WindowRow{
				Span: notation.FormatSpan(w.Span), MaxUnits: w.Limit, Algorithm: w.Algorithm, Anchor: w.Anchor,
			})
		}
		if got := spellWindows(&row); got != text {
			t.Errorf("%s came back as %s", text, got)
		}
	}
}

func TestDeadLettersAsJSONAreOneArray(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out}
	for i := range 2 {
		if err := printDead(p, true, i == 0, describeDead(&deadletter.Letter{JobID: fmt.Sprint("j", i), Reason: "refused"})); err != nil {
			t.Fatal(err)
		}
	}
	p.line("\n]")
	if got := out.String(); !strings.HasPrefix(got, "[\n  {") || strings.Count(got, `"job_id"`) != 2 || !strings.HasSuffix(got, "}\n]\n") {
		t.Fatal(got)
	}
}
