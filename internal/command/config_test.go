package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/config"
)

// TestConfigPrint: every setting in force, without secrets, and where it comes from. The configuration is checked first.
func TestConfigPrint(t *testing.T) {
	t.Chdir(t.TempDir())
	d := &desk{t: t}
	d.file("pacer.yaml", "kafka: {brokers: [\"127.0.0.1:1\"]}\nredis:\n  password: hunter2\n")
	d.environ = []string{"PACER_KAFKA_GROUP=night", "PACER_KAFKA_GRUOP=x"}
	code, out, errs := d.types("config print")
	if code != 0 || strings.Contains(out+errs, "hunter2") || !strings.Contains(errs, "PACER_KAFKA_GRUOP: there is no such setting") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	rows := map[string]string{}
	for line := range strings.Lines(out) {
		cells := strings.Fields(line)
		rows[cells[0]] = strings.Join(cells[1:], " ")
	}
	for key, want := range map[string]string{
		"KEY": "VALUE FROM", "kafka.group": "night PACER_KAFKA_GROUP", "kafka.brokers": "127.0.0.1:1 pacer.yaml:1",
		"redis.password": "*** pacer.yaml:3", "redis.username": "- default", "max_not_before": "90d default",
	} {
		if rows[key] != want {
			t.Errorf("%s: %q, want %q", key, rows[key], want)
		}
	}
	d.environ = nil
	if settings := read[[]config.Setting](d, "config print"); len(settings) != len(rows)-1 {
		t.Errorf("%d settings, %d rows", len(settings), len(rows))
	}
	d.environ = []string{"PACER_KAFKA_LANES=0"}
	d.refuses(2, "config print", "kafka.lanes")
}

func TestVersionInEveryForm(t *testing.T) {
	_, said, _ := execute(t, nil, "version")
	if code, flagged, _ := execute(t, nil, "--version"); code != 0 || flagged != said || !strings.HasPrefix(said, "pacer ") || !strings.Contains(said, "go1.") {
		t.Errorf("code %d: %q, %q", code, flagged, said)
	}
	var v version
	if code, out, _ := execute(t, nil, "version", "--json"); code != 0 || json.Unmarshal([]byte(out), &v) != nil ||
		!strings.HasPrefix(said, "pacer "+v.Version+", "+v.Go) {
		t.Errorf("code %d: %s, %q", code, out, said)
	}
}
