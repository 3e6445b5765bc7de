package command

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// asPacer makes the test's binary run one command line instead of tests: that of its arguments.
const asPacer = "PACER_TEST_AS_PACER=1"

func TestMain(m *testing.M) {
	environ := os.Environ()
	if own := slices.Index(environ, asPacer); own >= 0 {
		world := World{os.Stdin, os.Stdout, os.Stderr, slices.Delete(environ, own, own+1)}
		os.Exit(Run(context.Background(), os.Args[1:], world))
	}
	code := m.Run()
	schema.Drop()
	os.Exit(code)
}

// publisher is where a person publishes jobs to a Kafka of its own.
type publisher struct {
	*desk
	kafka *kfake.Cluster
}

const publisherPartitions = 3

func newPublisher(t *testing.T, options ...kfake.Opt) *publisher {
	t.Helper()
	t.Chdir(t.TempDir())
	p := &publisher{&desk{t: t}, kafkatest.Cluster(t, append(options, kfake.NumBrokers(3), kfake.SeedTopics(publisherPartitions, "pacer.jobs"))...)}
	p.environ = []string{"PACER_KAFKA_BROKERS=" + strings.Join(p.kafka.ListenAddrs(), ",")}
	return p
}

// ids counts the jobs by their ids.
func (p *publisher) ids() map[string]int {
	p.t.Helper()
	client := try(broker.New(broker.Options{Brokers: p.kafka.ListenAddrs(), Topics: []string{"pacer.jobs"}}))(p.t)
	defer client.Close()
	ids := map[string]int{}
	for part := range publisherPartitions {
		for r, err := range client.Scan(p.t.Context(), broker.Partition{Topic: "pacer.jobs", ID: part}, 0) {
			if err != nil {
				p.t.Fatal(err)
			}
			ids[r.Header(delivery.HeaderJobID)]++
		}
	}
	return ids
}

// TestPublishGoesOnAfterKill: the process is killed within a round of batches, after some of its writes. The next one goes on behind the
// rounds before it, with the same ids.
func TestPublishGoesOnAfterKill(t *testing.T) {
	p := newPublisher(t)
	const jobs = 20_000
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"n\":%d}\n", i)
	}
	p.file("jobs.jsonl", text.String())
	child := exec.Command(os.Args[0], "publish", "--campaign", "spring", "--file", "jobs.jsonl")
	child.Env = append(slices.Clone(p.environ), asPacer)
	started, dead := make(chan *os.Process, 1), make(chan struct{})
	requests := 0
	p.kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if requests++; requests == 14 { // the second one of the fifth round
			_ = (<-started).Kill()
			<-dead
		}
		return nil, nil, false
	})
	must(t, child.Start())
	started <- child.Process
	_ = child.Wait() // it is killed
	close(dead)

	v := read[publishSummary](p.desk, "publish --campaign spring --file jobs.jsonl")
	if v.Before == 0 || !v.Complete || v.Before+v.Published != jobs || v.Bad != 0 {
		t.Errorf("%+v", v)
	}
	ids, twice := p.ids(), 0
	for id, n := range ids {
		if n > 1 {
			twice++
		}
		if n > 2 || !strings.Contains(id, "-") {
			t.Errorf("%d jobs with the id %s", n, id)
		}
	}
	if len(ids) != jobs || twice > publisherPartitions*500 {
		t.Errorf("%d of %d ids, %d of them twice", len(ids), jobs, twice)
	}
	if _, err := os.Stat("jobs.jsonl.checkpoint"); !os.IsNotExist(err) {
		t.Errorf("the checkpoint is left behind: %v", err)
	}
	if again := read[publishSummary](p.desk, "publish --campaign spring --file jobs.jsonl --checkpoint none"); again.Before != 0 || again.Published != jobs {
		t.Errorf("%+v", again)
	}
	if again := p.ids(); len(again) != jobs {
		t.Errorf("the same file again has %d ids, want %d", len(again), jobs)
	}
}

// TestPublishedIsWhatTheFileSays: ids, headers and payloads of the map, and of stdin.
func TestPublishedIsWhatTheFileSays(t *testing.T) {
	p := newPublisher(t)
	p.file("jobs.csv", "key,body,units\nu-1,hello,2\nu-2,{},\n")
	p.shows("publish --campaign spring --file jobs.csv --map id=key,payload=body --map weight=units",
		"published 2 jobs of campaign spring to pacer.jobs in ")
	var said, errs bytes.Buffer
	stdin := strings.NewReader("{\"k\":\"u-3\"}\n{}\n{\"k\":\"u-4\"}\n")
	code := Run(t.Context(), strings.Fields("publish --campaign spring --file - --map id=k"), World{stdin, &said, &errs, p.environ})
	if code != 1 {
		t.Errorf("code %d", code)
	}
	contains(t, errs.String(), `line 2 has no "k", the id of its job`, "(1 job published)")
	if ids := p.ids(); !maps.Equal(ids, map[string]int{"u-1": 1, "u-2": 1, "u-3": 1}) {
		t.Error(ids)
	}
	v := read[publishSummary](p.desk, "publish --campaign spring --count 10 --header pacer-destination=shop-7 --header tenant=blue")
	if v.Published != 10 || !v.Complete || v.Topic != "pacer.jobs" {
		t.Errorf("%+v", v)
	}
}

// TestNothingIsPublishedWhileALineIsWrong: each wrong line is said, and a dry run says the same.
func TestNothingIsPublishedWhileALineIsWrong(t *testing.T) {
	p := newPublisher(t)
	p.file("jobs.jsonl", "{\"k\":\"u-1\"}\n{\"k\":\"u 2\"}\n")
	for _, dry := range []string{"", " --dry-run"} {
		code, stdout, stderr := p.types("publish --campaign spring --file jobs.jsonl --map id=k" + dry)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.HasPrefix(stderr, `pacer: jobs.jsonl: line 2 has a bad id: "k" must be`) || !strings.HasSuffix(stderr, "; nothing was published\n") {
			t.Errorf("code %d, %s%s", code, stdout, stderr)
		}
	}
	p.file("jobs.jsonl", strings.Repeat("x\n", 30)+"{\"k\":\"u-1\"}\n")
	code, _, stderr := p.types("publish --campaign spring --file jobs.jsonl --map id=k")
	if code != 1 || strings.Count(stderr, "\n") != 21 ||
		!strings.HasSuffix(stderr, "pacer: jobs.jsonl: 30 lines are wrong, of which the first are above; nothing was published\n") {
		t.Errorf("code %d, %s", code, stderr)
	}
	v, code, _ := reads[publishSummary](p.desk, "publish --campaign spring --file jobs.jsonl --map id=k")
	if code != 1 || v.Bad != 30 || len(v.BadLines) != 20 || v.BadLines[1].Line != 2 || v.Complete {
		t.Errorf("%+v", v)
	}
	p.file("jobs.jsonl", "{\"k\":\"u-1\"}\n{\"k\":\"u-2\"}\n")
	p.prints("publish --campaign spring --file jobs.jsonl --map id=k --dry-run", "2 jobs of campaign spring would be published; no line is wrong\n")
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 1 || len(p.ids()) != 0 {
		t.Errorf("something was written: %v, %v, %v", entries, p.ids(), err)
	}
}

// TestAStopOfTheBrokerLosesNoPlace: a job that the topic does not take ends the call, which says where it goes on.
func TestAStopOfTheBrokerLosesNoPlace(t *testing.T) {
	p := newPublisher(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}))
	p.file("jobs.jsonl", strings.Repeat("small\n", 4000)+strings.Repeat("x", 30_000)+"\nsmall\n")
	const publish = "publish --campaign spring --file jobs.jsonl --checkpoint place"
	p.refuses(1, publish, "-4001) is larger than the topic takes", "the same command goes on behind the first ")
	if v := read[publishSummary](p.desk, publish+" --dry-run"); v.Before == 0 || *v.Jobs != 4002 || !v.DryRun || v.Complete {
		t.Errorf("%+v", v)
	}
	for _, change := range []string{" --campaign autumn", " --format csv", " --map weight=x", " --header tenant=blue"} {
		p.refuses(1, publish+change, "place")
	}
	p.file("jobs.jsonl", "small\n")
	p.refuses(1, publish, "place is of another content")
	p.refuses(2, "publish --campaign spring --file jobs.jsonl --checkpoint no/where", "or none")
}

// TestAFileThatChangesWhileItIsPublished: its jobs are not those that were checked, and the call says so.
func TestAFileThatChangesWhileItIsPublished(t *testing.T) {
	p := newPublisher(t)
	lines := func(text string) string {
		return strings.Repeat(strings.Repeat(text, 300)+"\n", 4*publisherPartitions*500)
	}
	p.file("jobs.jsonl", lines("a"))
	changed := false
	p.kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if !changed {
			changed = true
			p.file("jobs.jsonl", lines("b"))
		}
		return nil, nil, false
	})
	p.refuses(1, "publish --campaign spring --file jobs.jsonl", "the file was changed while it was published")
}

func TestTimeLeft(t *testing.T) {
	for _, tc := range []struct {
		done, total int64
		took        time.Duration
		want        string
	}{
		{0, 100, time.Minute, ""}, {100, 100, time.Minute, ""}, {50, 100, 10 * time.Millisecond, ""},
		{25, 100, time.Minute, ", 3m0s left"}, {1, 2, time.Minute, ", 1m0s left"},
	} {
		if got := timeLeft(tc.done, tc.total, tc.took); got != tc.want {
			t.Errorf("%d of %d in %s: %q", tc.done, tc.total, tc.took, got)
		}
	}
}
