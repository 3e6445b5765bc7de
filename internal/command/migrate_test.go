package command

import (
	"context"
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

// TestWhatCannotBeUndoneNeedsYes: without a terminal to ask on, nothing is done without --yes.
func TestWhatCannotBeUndoneNeedsYes(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.run("campaign create spring --rate 5")
	d.environ = append(d.environ, "PACER_KAFKA_BROKERS="+strings.Join(kafkatest.Cluster(t).ListenAddrs(), ","))
	for _, line := range []string{"campaign cancel spring", "campaign set spring --status cancelled", "campaign delete spring", "migrate wipe"} {
		d.refuses(2, line, "give --yes")
	}
	d.fields(d.run("campaign show spring"), "status active")
	d.refuses(2, "campaign delete spring --yes", "only cancelled and completed campaigns are deleted")
	d.fields(d.run("campaign cancel spring --yes"), "status cancelled")
	d.prints("campaign delete spring --yes", "deleted campaign spring, which had delivered 0 jobs\n")
	d.prints("campaign list --json", "[]\n")
	d.run("campaign create summer --rate 5")
	d.fields(d.run("campaign set summer --status completed"), "status completed")
	d.fields(d.run("campaign set summer --status cancelled --yes"), "status cancelled")
}

// TestWipe removes what pacer has made and nothing else, unless a daemon runs. After it everything is as new, except what the store has
// counted: a quota of the same id goes on with its counts, and its row acts, as does a campaign's.
func TestWipe(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
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
	d.spend("provider", 4)

	daemon := try(catalog.NewPostgres(catalog.Options{DSN: d.dsn}))(t)
	try(daemon.LoadOutlooks(t.Context()))(t) // it has a connection
	d.refusesWipe(0, 1)
	daemon.Close()
	client := try(broker.New(broker.Options{Brokers: brokers, Topics: []string{ingress}}))(t)
	defer client.Close()
	member := join(t, client, group, ingress)
	d.refusesWipe(1, 0)
	must(t, client.Leave(t.Context(), member))

	out := d.run("migrate wipe --yes")
	if !strings.Contains(out, "removed topic "+prefix+"lanes\n") || !strings.HasSuffix(out, "removed the schema pacer\n") || strings.Contains(out, ingress) {
		t.Error(out)
	}
	if ids, _, err := client.Identify(t.Context(), ingress); err != nil || !ids[ingress].Known() {
		t.Errorf("%s is gone, %v", ingress, err)
	}
	d.refuses(1, "quota show provider", "pacer migrate up")
	d.prints("migrate wipe --yes", "nothing to remove\n")
	d.run("migrate up")
	d.refuses(1, "quota show provider", "provider")
	d.run("quota set provider --window 12/1h")
	d.spend("provider", 8)
	if granted := d.take("provider", 1); granted != 0 {
		t.Error("the counts are forgotten")
	}
}

// refusesWipe checks that nothing is removed while there are members of the group or sessions of daemons.
func (d *desk) refusesWipe(members, sessions int) {
	d.t.Helper()
	want := fmt.Sprintf(" has %d members, and the database %d sessions of daemons; stop them and run this again\n", members, sessions)
	// A session that was closed may be listed for a moment.
	kafkatest.Eventually(d.t, want, func() bool {
		code, out, errs := d.types("migrate wipe --yes")
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
	code, out, errs := d.types("migrate status")
	if code != 1 || !strings.Contains(out, "run: pacer migrate up, and create the ingress topics") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	if done := read[migrationDone](d, "migrate up"); len(done.Applied) != 0 || len(done.Topics) < 5 {
		t.Errorf("%+v", done)
	}
	code, out, errs = d.types("migrate status")
	if code != 1 || strings.Contains(out, "run: pacer migrate up") || !strings.Contains(out, "something is missing; create the ingress topics") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	if status, code, _ := reads[migrationStatus](d, "migrate status"); code != 1 || !status.lacksIngress() || status.pending() {
		t.Errorf("code %d, %+v", code, status)
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
	d.shows("migrate up", "set up for the Kafka cluster ours, consumer group pacer and topics pacer.*\n")
	d.prints("migrate up", "nothing to do: schema and topics are up to date\n")
	at(theirs)
	const other = "its id is theirs, and pacer is set up for ours"
	const then = "; correct kafka.brokers. To use that cluster from now on, stop all daemons and run pacer migrate up --cluster theirs"
	for line, says := range map[string]string{
		"migrate up": other + then, "migrate up --cluster ours": other + then, "migrate status": other + then, "migrate wipe --yes": other + then,
		"publish --campaign spring --count 1": other, "dead list": other, "dead replay": other,
	} {
		code, _, said := d.types(line)
		if contains(t, said, says); code != 1 {
			t.Errorf("%s: code %d", line, code)
		}
	}
	at(theirs + "," + ours)
	for range 5 {
		d.run("migrate up")
		if code, out, _ := d.types("check"); code != 1 || strings.Count(out, other) != 1 || !strings.Contains(out, "ok    topics\n") {
			t.Errorf("check: code %d, %s", code, out)
		}
	}
	at(theirs)
	d.shows("migrate up --cluster theirs", "set up for the Kafka cluster theirs", "pacer.lanes")
	d.run("migrate status")
}
