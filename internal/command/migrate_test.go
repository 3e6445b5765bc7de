package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
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
	d.environ = append(d.environ, "PACER_KAFKA_BROKERS="+strings.Join(kafkatest.Cluster(t).ListenAddrs(), ","))
	for _, line := range []string{"campaign cancel spring", "campaign set spring --status cancelled", "migrate wipe"} {
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

// TestWipe removes what pacer has made and nothing else, unless a daemon runs. After it everything is as new, except what the store has
// counted: a quota of the same id goes on with its counts, and its row acts, as does a campaign's.
func TestWipe(t *testing.T) {
	store := testservices.FreshRedis(t)
	d := newDesk(t, store.Addr)
	brokers := testservices.Kafka(t)
	ingress, prefix, group := testservices.Topic(t, brokers, "ingress", 1), testservices.Unique("wipe")+".", testservices.Unique("group")
	d.environ = append(d.environ, "PACER_KAFKA_BROKERS="+strings.Join(brokers, ","), "PACER_KAFKA_LANES=1", "PACER_KAFKA_TOPIC_PREFIX="+prefix,
		"PACER_KAFKA_TOPICS="+ingress, "PACER_KAFKA_GROUP="+group)
	d.run("migrate up")
	d.run("quota set provider --window 10/1h")
	for range 3 {
		d.run("quota set provider --window 9/1h")
		d.run("quota set provider --window 10/1h")
	}
	spend(t, store.Addr, d.dsn, "provider", 4)

	daemon, err := catalog.NewPostgres(catalog.Options{DSN: d.dsn})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.LoadOutlooks(t.Context()); err != nil { // it has a connection
		t.Fatal(err)
	}
	d.refusesWipe(0, 1)
	daemon.Close()
	client, err := broker.New(broker.Options{Brokers: brokers, Topics: []string{ingress}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	member := join(t, client, group, ingress)
	d.refusesWipe(1, 0)
	if err := client.Leave(t.Context(), member); err != nil {
		t.Fatal(err)
	}

	out := d.run("migrate wipe --yes")
	if !strings.Contains(out, "removed topic "+prefix+"lanes\n") || !strings.HasSuffix(out, "removed the schema pacer\n") || strings.Contains(out, ingress) {
		t.Error(out)
	}
	if counts, err := client.Counts(t.Context(), []string{ingress}); err != nil || counts[ingress] == 0 {
		t.Errorf("%s is gone, %v", ingress, err)
	}
	d.refuses("quota show provider", "pacer migrate up")
	if out := d.run("migrate wipe --yes"); out != "nothing to remove\n" {
		t.Errorf("once more: %s", out)
	}
	d.run("migrate up")
	d.refuses("quota show provider", "provider")
	d.run("quota set provider --window 12/1h")
	spend(t, store.Addr, d.dsn, "provider", 8)
	if granted := takeUnits(t, store.Addr, d.dsn, "provider", 1); granted != 0 {
		t.Error("the counts are forgotten")
	}
}

// refusesWipe checks that nothing is removed while there are members of the group or sessions of daemons.
func (d *desk) refusesWipe(members, sessions int) {
	d.t.Helper()
	want := fmt.Sprintf(" has %d members, and the database %d sessions of daemons; stop them and run this again\n", members, sessions)
	// A session that was closed may be listed for a moment.
	kafkatest.Eventually(d.t, want, func() bool {
		code, out, errs := d.try("migrate wipe --yes")
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 {
			d.t.Fatalf("code %d, %s%s", code, out, errs)
		}
		return strings.HasSuffix(errs, want)
	})
}

// join makes a member of a group.
func join(t *testing.T, client *broker.Client, group, topic string) broker.Member {
	t.Helper()
	m := broker.Member{Group: group}
	for range 1000 {
		joined, err := client.Join(t.Context(), broker.Joining{Member: m, Topics: []string{topic}, Session: 30 * time.Second, Rebalance: 30 * time.Second,
			Protocol: "any"})
		switch {
		case err == nil:
			return joined.Member
		case broker.NamesMember(err):
			m.ID = joined.ID
		case broker.Busy(err): // the coordinator of a new group
			time.Sleep(20 * time.Millisecond)
		default:
			t.Fatal(err)
		}
	}
	t.Fatal("the group stays busy")
	return m
}

// TestMigrateStatusTellsWhatIsMissing: an ingress topic too, which pacer does not make.
func TestMigrateStatusTellsWhatIsMissing(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.environ = append(d.environ, "PACER_KAFKA_BROKERS="+strings.Join(kafkatest.Cluster(t).ListenAddrs(), ","), "PACER_KAFKA_LANES=2",
		"PACER_KAFKA_TOPIC_PREFIX="+testservices.Unique("status")+".", "PACER_KAFKA_TOPICS=nobody-made-this")
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

// TestTheClusterIsStored: `migrate up` stores the id of the cluster, and changes it only when told to. With another one nothing is made
// or removed, and the check says so, also of a single seed.
func TestTheClusterIsStored(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	ours := kafkatest.Cluster(t, kfake.ClusterID("ours"), kfake.SeedTopics(1, "jobs")).ListenAddrs()[0]
	theirs := kafkatest.Cluster(t, kfake.ClusterID("theirs"), kfake.SeedTopics(1, "jobs")).ListenAddrs()[0]
	environ := append(d.environ, "PACER_KAFKA_LANES=2", "PACER_KAFKA_TOPICS=jobs", "PACER_SINKS_NOWHERE_TYPE=discard")
	at := func(brokers string) { d.environ = append(slices.Clone(environ), "PACER_KAFKA_BROKERS="+brokers) }
	at(ours)
	if out := d.run("migrate up"); !strings.Contains(out, "set up for the Kafka cluster ours, consumer group pacer and topics pacer.*\n") {
		t.Error(out)
	}
	if out := d.run("migrate up"); out != "nothing to do: schema and topics are up to date\n" {
		t.Error(out)
	}
	for _, line := range []string{"migrate up", "migrate up --cluster ours", "migrate status", "migrate wipe --yes"} {
		at(theirs)
		d.refuses(line, "its id is theirs, and pacer is set up for ours; correct kafka.brokers. To use that cluster from now on, stop all daemons and "+
			"run pacer migrate up --cluster theirs")
	}
	for _, line := range []string{"publish --campaign spring --count 1", "dead list", "dead replay"} {
		d.refuses(line, "its id is theirs, and pacer is set up for ours")
	}
	at(theirs + "," + ours)
	for range 5 {
		d.run("migrate up")
		if code, out, _ := d.try("check"); code != 1 || strings.Count(out, "its id is theirs, and pacer is set up for ours") != 1 || !strings.Contains(out, "ok    topics\n") {
			t.Errorf("check: code %d, %s", code, out)
		}
	}
	at(theirs)
	if out := d.run("migrate up --cluster theirs"); !strings.Contains(out, "set up for the Kafka cluster theirs") || !strings.Contains(out, "pacer.lanes") {
		t.Error(out)
	}
	d.run("migrate status")
}
