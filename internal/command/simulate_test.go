package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// docs/measured.md shows what the command prints, and what it draws of all algorithms together.
func TestSimulateIsAsDocumented(t *testing.T) {
	docs := try(filepath.Abs("../../docs"))(t)
	page := try(os.ReadFile(filepath.Join(docs, "measured.md")))(t)
	for _, c := range []struct {
		args   []string
		images string
	}{{nil, "images"}, {[]string{"--idle", ""}, "images/steady"}} {
		out := t.TempDir()
		code, stdout, stderr := execute(t, nil, append([]string{"simulate", "--out", out}, c.args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%q: code %d, says %q", c.args, code, stderr)
		}
		if !strings.Contains(string(page), "```\n"+stdout+"```\n") {
			t.Errorf("%q: docs/measured.md lacks this table:\n%s", c.args, stdout)
		}
		shown, err := filepath.Glob(filepath.Join(docs, c.images, "simulate-*.svg"))
		if err != nil || len(shown) == 0 {
			t.Fatalf("%q: no plots in docs/%s, %v", c.args, c.images, err)
		}
		for _, file := range shown {
			want := try(os.ReadFile(file))(t)
			got, err := os.ReadFile(filepath.Join(out, filepath.Base(file)))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not what the command draws (%v); draw it anew with pacer simulate --out", file, err)
			}
			if !strings.Contains(string(page), c.images+"/"+filepath.Base(file)) {
				t.Errorf("docs/measured.md does not show %s", file)
			}
		}
	}
}

func TestSimulateAsJSON(t *testing.T) {
	code, stdout, stderr := execute(t, nil, "simulate", "--json", "--algorithm", "slots", "--algorithm", "fixed-window",
		"--rate", "4", "--jobs", "8", "--idle", "500ms:250ms")
	if code != 0 || stderr != "" {
		t.Fatalf("code %d, says %q", code, stderr)
	}
	var got, want any
	must(t, json.Unmarshal([]byte(stdout), &got))
	_ = json.Unmarshal([]byte(`{"rate": 4, "jobs": 8, "idle": [{"at_s": 0.5, "for_s": 0.25}], "algorithms": [
		{"name": "fixed-window", "title": "fixed window", "sent": 8, "sent_per_second": [4, 4],
		 "max_rolling_1s": 4, "max_rolling_100ms": 4, "finished_s": 1},
		{"name": "slots", "title": "pacer's slots", "sent": 8, "sent_per_second": [3, 4, 1],
		 "max_rolling_1s": 4, "max_rolling_100ms": 1, "finished_s": 2.199841}]}`), &want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it prints %s", stdout)
	}
}
