package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/notation"
)

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
		q := &view.Quota{}
		parsed, err := notation.ParseWindows(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range parsed {
			q.Windows = append(q.Windows, view.Window{Span: notation.FormatSpan(w.Span), Limit: w.Limit, Algorithm: w.Algorithm, Anchor: w.Anchor})
		}
		if got := strings.Join(settingsOf(q).Windows, ","); got != text {
			t.Errorf("%s came back as %s", text, got)
		}
	}
}

func TestDeadLettersAsJSONAreOneArray(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out}
	for i := range 2 {
		if err := printDead(p, true, i == 0, view.WholeLetterOf(&deadletter.Letter{JobID: fmt.Sprint("j", i), Reason: "refused"}, "").Letter); err != nil {
			t.Fatal(err)
		}
	}
	p.line("\n]")
	if got := out.String(); !strings.HasPrefix(got, "[\n  {") || strings.Count(got, `"job_id"`) != 2 || !strings.HasSuffix(got, "}\n]\n") {
		t.Fatal(got)
	}
}
