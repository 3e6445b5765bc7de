package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRecordingReadsWhatIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sent")
	recording := New(path)
	next := func() (lines []string) {
		t.Helper()
		err := recording.Next(func(at time.Time, campaign, job string) error {
			lines = append(lines, fmt.Sprintf("%d %s %s", at.UnixMicro(), campaign, job))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if lines := next(); lines != nil {
		t.Errorf("before there is a file: %q", lines)
	}
	write("17 a 1\n18 b 2\n19 ")
	if lines := next(); !slices.Equal(lines, []string{"17 a 1", "18 b 2"}) {
		t.Errorf("first %q", lines)
	}
	write("c 3\n")
	if lines := next(); !slices.Equal(lines, []string{"19 c 3"}) {
		t.Errorf("then %q", lines)
	}
	if lines := next(); lines != nil {
		t.Errorf("nothing new: %q", lines)
	}
}

func TestRecordingRefusesOtherFiles(t *testing.T) {
	for _, text := range []string{"hello\n", "soon a 1\n", "17 a\n", "17 " + strings.Repeat("x", maxRecordLine) + " 1\n"} {
		path := filepath.Join(t.TempDir(), "sent")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := New(path).Next(func(time.Time, string, string) error { return nil }); err == nil {
			t.Errorf("%.20q was read", text)
		}
	}
}
