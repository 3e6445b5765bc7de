package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/harness"
	"github.com/pacer/pacer/internal/harness/kafkatest"
)

// try runs one command line and returns what came of it.
func (d *desk) try(line string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = Run(d.t.Context(), strings.Fields(line), World{strings.NewReader(""), &stdout, &stderr, d.environ})
	return code, stdout.String(), stderr.String()
}

// TestWhatCannotBeUndoneNeedsYes: without a terminal to ask on, nothing is done without --yes.
func TestWhatCannotBeUndoneNeedsYes(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.run("campaign create spring --rate 5")
	for _, line := range []string{"campaign cancel spring", "campaign set spring --status cancelled"} {
		if code, out, errs := d.try(line); code != 2 || out != "" || !strings.Contains(errs, "give --yes") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: code %d, %s%s", line, code, out, errs)
		}
	}
	d.fields(d.run("campaign show spring"), "status active")
	d.fields(d.run("campaign cancel spring --yes"), "status cancelled")
	d.run("campaign create summer --rate 5")
	d.fields(d.run("campaign set summer --status completed"), "status completed")
	d.fields(d.run("campaign set summer --status cancelled --yes"), "status cancelled")
}

// TestMigrateStatusTellsWhatIsMissing: an ingress topic too, which pacer does not make.
func TestMigrateStatusTellsWhatIsMissing(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.environ = append(d.environ, "PACER_KAFKA_BROKERS="+strings.Join(kafkatest.Cluster(t).ListenAddrs(), ","), "PACER_KAFKA_LANES=2",
		"PACER_KAFKA_TOPIC_PREFIX="+harness.Unique("status")+".", "PACER_KAFKA_TOPICS=nobody-made-this")
	code, out, errs := d.try("migrate status")
	if code != 1 || !strings.Contains(out, "run: pacer migrate up, and create the ingress topics") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	var done migrationDone
	if err := json.Unmarshal([]byte(d.run("migrate up --json")), &done); err != nil || len(done.Applied) != 0 || len(done.Topics) < 5 {
		t.Errorf("%+v, %v", done, err)
	}
	code, out, errs = d.try("migrate status")
	if code != 1 || strings.Contains(out, "run: pacer migrate up") || !strings.Contains(out, "something is missing; create the ingress topics") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	code, out, _ = d.try("migrate status --json")
	var status migrationStatus
	if err := json.Unmarshal([]byte(out), &status); err != nil || code != 1 || !status.lacksIngress() || status.pending() {
		t.Errorf("code %d, %v, %s", code, err, out)
	}
}

func TestConfirm(t *testing.T) {
	for said, want := range map[string]bool{"y\n": true, "Yes\n": true, " yes ": true, "": false, "\n": false, "n\n": false, "yesterday\n": false} {
		var out strings.Builder
		err := confirmOn(t.Context(), strings.NewReader(said), &out, "cancel campaign spring for good")
		if (err == nil) != want || out.String() != "Cancel campaign spring for good? [y/N] " || err != nil && err.Error() != "nothing was done" {
			t.Errorf("%q: %v, asked %q", said, err, out.String())
		}
	}
	silent, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = write.Close(), silent.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if err := confirmOn(ctx, silent, &strings.Builder{}, "undo"); err == nil {
		t.Error("an interrupt was taken for a yes")
	}
}
