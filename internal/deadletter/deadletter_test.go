package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/brokertest"
)

// cemetery is where a test has its dead letters.
type cemetery struct {
	Topics
	t        testing.TB
	producer *broker.Producer
}

// newCemetery makes the topics, which take records of 300 KB.
func newCemetery(t testing.TB, client *broker.Client, prefix string) *cemetery {
	t.Helper()
	c := &cemetery{Topics: Topics{Client: client, Letters: prefix + "dead", Replays: prefix + "replays"}, t: t}
	large := map[string]string{"max.message.bytes": "300000"}
	_, err := client.CreateTopics(t.Context(), []broker.Topic{
		{Name: c.Letters, Partitions: 2, Replicas: 1, Config: large}, {Name: c.Replays, Partitions: 1, Replicas: 1, Config: large},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.producer = broker.NewProducer(broker.ProducerOptions{Client: client})
	return c
}

// job makes a plain job.
func job(offset int64, campaign string) *delivery.Job {
	return &delivery.Job{
		ID: campaign + "-" + strconv.FormatInt(offset, 10), Campaign: campaign, Weight: 1, Payload: []byte("payload"),
		History: delivery.History{Origin: delivery.Origin{Topic: "pacer.jobs", Offset: offset}},
	}
}

// bury writes a job's dead letter.
func (c *cemetery) bury(j *delivery.Job, reason delivery.Reason) {
	c.t.Helper()
	c.buryAt(j, reason, time.Now())
}

// buryAt is bury at some time.
func (c *cemetery) buryAt(j *delivery.Job, reason delivery.Reason, at time.Time) {
	c.t.Helper()
	c.write(j, new(record.Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToDead, Reason: reason, Detail: "why not"}, at))
}

func (c *cemetery) write(j *delivery.Job, letter delivery.Record) {
	c.t.Helper()
	_, err := c.producer.PublishTo(c.t.Context(), []broker.Partition{{Topic: c.Letters, ID: broker.HashPartition(j.Campaign, 2)}}, broker.All([]delivery.Record{letter}), nil)
	if err != nil {
		c.t.Fatal(err)
	}
}

// buryAll writes dead letters of two campaigns: six refused, two undecodable, one expired, and one too large.
func (c *cemetery) buryAll(ingress string) {
	put := func(offset int64, campaign string, reason delivery.Reason, change func(*delivery.Job)) {
		j := job(offset, campaign)
		j.Origin.Topic, j.Attempt, j.Hops = ingress, 3, 1
		j.Headers = []delivery.Header{{Key: "x", Value: []byte("kept")}}
		if change != nil {
			change(j)
		}
		c.bury(j, reason)
	}
	for i := range int64(3) {
		put(i, "spring", delivery.ReasonRefused, nil)
		put(10+i, "autumn", delivery.ReasonRefused, nil)
	}
	for i := range int64(2) {
		put(20+i, []string{"", "summer"}[i], delivery.ReasonUndecodable, func(j *delivery.Job) {
			j.Flaw, j.Payload = &delivery.Flaw{Defect: delivery.ReasonUndecodable}, []byte("{broken")
		})
	}
	put(30, "spring", delivery.ReasonExpired, func(j *delivery.Job) { j.Destination, j.ExpiresAt = "shop-7", time.Now().Add(-time.Hour) })
	put(31, "spring", delivery.ReasonTooLarge, func(j *delivery.Job) {
		j.Flaw, j.Payload = &delivery.Flaw{Defect: delivery.ReasonTooLarge, Lost: 400_000}, nil
	})
}

func checkDeadLetters(t *testing.T, c *cemetery, ingress string) {
	c.buryAll(ingress)
	list := func(opts Options) (letters []Letter) {
		t.Helper()
		opts.Topics = c.Topics
		if err := List(t.Context(), opts, func(d Letter) error { letters = append(letters, d); return nil }); err != nil {
			t.Fatal(err)
		}
		return letters
	}
	for _, c := range []struct {
		opts Options
		want int
	}{
		{Options{}, 10},
		{Options{Limit: 4}, 4},
		{Options{Filter: Filter{Campaign: "spring"}}, 5},
		{Options{Filter: Filter{Reason: delivery.ReasonUndecodable}}, 2},
		{Options{Filter: Filter{Campaign: "spring", Reason: delivery.ReasonRefused}}, 3},
		{Options{Filter: Filter{Campaign: "spring", Reason: delivery.ReasonRefused}, Limit: 2}, 2},
		{Options{Filter: Filter{Campaign: "winter"}}, 0},
		{Options{Filter: Filter{Campaign: "summer"}}, 1},
		{Options{Filter: Filter{Campaign: delivery.UnknownCampaign}}, 1},
		{Options{Filter: Filter{JobID: "autumn-11"}}, 1},
		{Options{Filter: Filter{To: "shop-7"}}, 1},
		{Options{Filter: Filter{To: "shop-8"}}, 0},
	} {
		if got := len(list(c.opts)); got != c.want {
			t.Errorf("%+v: %d letters, want %d", c.opts, got, c.want)
		}
	}
	all := list(Options{})
	d := all[0]
	if d.JobID != "spring-0" || d.Campaign != "spring" || d.Reason != delivery.ReasonRefused || d.Detail != "why not" || d.Attempts != 3 ||
		d.Origin != (delivery.Origin{Topic: ingress}) || time.Since(d.At) > time.Minute || string(d.Payload) != "payload" {
		t.Errorf("letter %+v", d)
	}
	if !slices.IsSortedFunc(all, func(a, b Letter) int {
		return a.At.Truncate(time.Millisecond).Compare(b.At.Truncate(time.Millisecond))
	}) {
		t.Error("letters are not in order of time")
	}
	stop := errors.New("enough")
	if err := List(t.Context(), Options{Topics: c.Topics}, func(Letter) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the reader's error was lost: %v", err)
	}

	for most, want := range map[int]error{4: ErrMore, 10: nil} { // letters that do not match count as well
		scanned := 0
		err := List(t.Context(), Options{Topics: c.Topics, Filter: Filter{Campaign: "winter"}, MaxScanned: most, Scanned: &scanned}, func(Letter) error { return stop })
		if !errors.Is(err, want) || scanned != most {
			t.Errorf("at most %d: %d were read, %v", most, scanned, err)
		}
	}
	checkReplay(t, c, ingress)
}

// replayer replays onto an ingress topic.
func replayer(t *testing.T, c *cemetery, ingress string) func(ReplayOptions) ReplayReport {
	return func(opts ReplayOptions) ReplayReport {
		t.Helper()
		opts.Topics, opts.Ingress = c.Topics, []string{"elsewhere", ingress}
		report, err := Replay(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
}

func checkReplay(t *testing.T, c *cemetery, ingress string) {
	client := c.Client
	replay := replayer(t, c, ingress)
	spring := Filter{Campaign: "spring"}
	want := ReplayReport{
		Matched: 5, Replayed: 3, Truncated: 1, Expired: 1, Topics: map[string]int{ingress: 3},
		Groups: []ReplayedGroup{{Group{"spring", delivery.ReasonRefused}, 3}},
	}
	if got := replay(ReplayOptions{Filter: spring, DryRun: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("dry run %+v, want %+v", got, want)
	}
	if n := len(brokertest.ReadAll(t, client, ingress)); n != 0 {
		t.Fatalf("a dry run wrote %d records", n)
	}
	if got := replay(ReplayOptions{Filter: spring}); !reflect.DeepEqual(got, want) {
		t.Errorf("replay %+v, want %+v", got, want)
	}
	replayed := brokertest.ReadAll(t, client, ingress)
	if len(replayed) != 3 {
		t.Fatalf("%d records replayed", len(replayed))
	}
	for _, r := range replayed {
		for _, h := range []string{
			delivery.HeaderAttempt, delivery.HeaderHops, delivery.HeaderOrigin, delivery.HeaderEnqueuedAt, delivery.HeaderFirstRead,
			delivery.HeaderReason, delivery.HeaderDetail,
		} {
			if r.Header(h) != "" {
				t.Errorf("%s of the former life was kept: %q", h, r.Header(h))
			}
		}
		if r.Header(delivery.HeaderCampaign) != "spring" || !strings.HasPrefix(r.Header(delivery.HeaderJobID), "spring-") ||
			r.Header("x") != "kept" || string(r.Value) != "payload" || !strings.HasPrefix(r.Header(delivery.HeaderReplayedFrom), c.Letters+"/") {
			t.Errorf("replayed %q %q", r.Headers, r.Value)
		}
	}
	expired := Filter{Reason: delivery.ReasonExpired}
	if got := replay(ReplayOptions{Filter: expired, DropExpiry: true}); got.Replayed != 1 {
		t.Errorf("expired letters replayed: %+v", got)
	}
	all := brokertest.ReadAll(t, client, ingress)
	if i := slices.IndexFunc(all, func(r delivery.Record) bool { return r.Header(delivery.HeaderJobID) == "spring-30" }); i < 0 || all[i].Header(delivery.HeaderExpiresAt) != "" {
		t.Errorf("the expiry was kept")
	}
	checkReplayAgain(t, c, ingress)
}

// checkReplayAgain goes on where checkReplay left off: all of spring but the letter that is too large are replayed.
func checkReplayAgain(t *testing.T, c *cemetery, ingress string) {
	client := c.Client
	replay := replayer(t, c, ingress)
	const some = -1 // letters of one millisecond lie in no order
	for _, c := range []struct {
		what             string
		opts             ReplayOptions
		matched, done, n int
	}{
		{"a second time", ReplayOptions{Filter: Filter{Campaign: "spring"}, DropExpiry: true}, 5, 4, 0},
		{"a second time, dry", ReplayOptions{Filter: Filter{Campaign: "spring"}, DropExpiry: true, DryRun: true}, 5, 4, 0},
		{"two at a time", ReplayOptions{Limit: 2}, some, some, 2},
		{"the next two", ReplayOptions{Limit: 2, DropExpiry: true}, some, some, 2},
		{"the rest", ReplayOptions{DropExpiry: true}, 10, 8, 1},
		{"one again", ReplayOptions{Filter: Filter{JobID: "spring-0"}, Again: true}, 1, 0, 1},
		{"and again", ReplayOptions{Filter: Filter{JobID: "spring-0"}, Again: true}, 1, 0, 1},
		{"not again", ReplayOptions{Filter: Filter{JobID: "spring-0"}}, 1, 1, 0},
	} {
		before := len(brokertest.ReadAll(t, client, ingress))
		got := replay(c.opts)
		if got.Replayed != c.n || c.matched != some && (got.Matched != c.matched || got.Before != c.done) {
			t.Errorf("%s: %+v, want %d matched, %d replayed before, %d now", c.what, got, c.matched, c.done, c.n)
		}
		if n := len(brokertest.ReadAll(t, client, ingress)) - before; n != c.n {
			t.Errorf("%s: %d records written, want %d", c.what, n, c.n)
		}
	}
	open, places := 0, []Place(nil)
	err := List(t.Context(), Options{Topics: c.Topics}, func(d Letter) error {
		places = append(places, d.Place)
		place, err := Read(t.Context(), Options{Topics: c.Topics}, d.Place)
		if err != nil || !reflect.DeepEqual(place, d) {
			t.Errorf("read at its place: %+v, %v; listed as %+v", place, err, d)
		}
		if !d.Replayed {
			open++
		}
		return nil
	})
	if err != nil || open != 1 {
		t.Errorf("%d letters are not replayed, want the one without its payload; %v", open, err)
	}
	for _, chosen := range [][]Place{{places[0]}, {places[1], places[len(places)-1]}, {{0, 99}, {7, 0}, places[2]}, {{0, 99}}} {
		report := replay(ReplayOptions{Filter: Filter{Places: chosen}, Again: true, DropExpiry: true, DryRun: true})
		there := 0
		for _, place := range chosen {
			if slices.Contains(places, place) {
				there++
			}
		}
		if report.Matched != there {
			t.Errorf("of the letters at %v %d match, want %d", chosen, report.Matched, there)
		}
	}
	for _, place := range []Place{{0, 99}, {7, 0}, {-1, 0}, {0, -1}} {
		if _, err := Read(t.Context(), Options{Topics: c.Topics}, place); !errors.Is(err, ErrNoLetter) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

func TestReplayKeepsItsRateAndFinishesABatchWhenInterrupted(t *testing.T) {
	t.Parallel()
	client := brokertest.Cluster(t, kfake.SeedTopics(2, "jobs"))
	c := newCemetery(t, client, "t.")
	for i := range int64(60) {
		c.bury(job(i, "spring"), delivery.ReasonRefused)
	}
	opts := ReplayOptions{Topics: c.Topics, Ingress: []string{"jobs"}, Rate: delivery.PerSecond(100), Limit: 30}
	began := time.Now()
	report, err := Replay(t.Context(), opts)
	if took := time.Since(began); err != nil || report.Replayed != 30 || took < 285*time.Millisecond {
		t.Errorf("%+v, %v after %s; thirty at 100/s take 290ms", report, err, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opts.Limit, opts.Progress = 0, func(n int) {
		if n >= 10 {
			cancel()
		}
	}
	report, err = Replay(ctx, opts)
	if !errors.Is(err, context.Canceled) || report.Replayed < 10 || report.Replayed > 20 || report.Doubtful != 0 {
		t.Errorf("interrupted: %+v, %v", report, err)
	}
	interrupted := report.Replayed
	opts.Rate, opts.Progress = delivery.Rate{}, nil
	if report, err = Replay(t.Context(), opts); err != nil || report.Replayed != 30-interrupted || report.Before != 30+interrupted {
		t.Errorf("went on after %d: %+v, %v", interrupted, report, err)
	}
	seen := make(map[string]int)
	for _, r := range brokertest.ReadAll(t, client, "jobs") {
		seen[r.Header(delivery.HeaderJobID)]++
	}
	if len(seen) != 60 || len(brokertest.ReadAll(t, client, "jobs")) != 60 {
		t.Errorf("%d jobs in %d records", len(seen), len(brokertest.ReadAll(t, client, "jobs")))
	}
}

// One letter that its topic does not take is named and left out; the others are replayed, and remembered without it. One
// that fits compressed fits.
func TestReplayLeavesOutWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	client := brokertest.Cluster(t, kfake.SeedTopics(2, "jobs"))
	alter(t, client, "200000")
	c, random := newCemetery(t, client, "t."), rand.NewChaCha8([32]byte{})
	for i := range int64(6) {
		j := job(i, "spring")
		switch i {
		case 0, 3:
			j.Payload = make([]byte, 100_000)
			_, _ = random.Read(j.Payload)
		case 1:
			j.Payload = make([]byte, 100_000)
		}
		c.bury(j, delivery.ReasonRefused)
	}
	alter(t, client, "50000")
	opts := ReplayOptions{Topics: c.Topics, Ingress: []string{"jobs"}, Limit: 3}
	report, err := Replay(t.Context(), opts)
	if err != nil || report.Replayed != 3 || report.Oversize == 0 || report.Oversize != len(report.Oversized) {
		t.Fatalf("%+v, %v", report, err)
	}
	var at Place
	if _, err := fmt.Sscanf(report.Oversized[0].Place, "%d/%d", &at.Partition, &at.Offset); err != nil {
		t.Fatal(err)
	}
	if o := report.Oversized[0]; o.Topic != "jobs" || o.Bytes < 100_000 || o.Bytes > 101_000 {
		t.Errorf("named %+v", o)
	} else if d, err := Read(t.Context(), Options{Topics: c.Topics}, at); err != nil || len(d.Payload) != 100_000 || d.Replayed {
		t.Errorf("at %s lies %s of %d bytes, replayed %v, %v", o.Place, d.JobID, len(d.Payload), d.Replayed, err)
	}
	opts.Limit = 0
	if report, err = Replay(t.Context(), opts); err != nil || report.Replayed != 1 || report.Before != 3 || report.Oversize != 2 {
		t.Errorf("the rest: %+v, %v", report, err)
	}
	if n := len(brokertest.ReadAll(t, client, "jobs")); n != 4 {
		t.Errorf("%d records, want 4", n)
	}
	alter(t, client, "200000")
	if report, err = Replay(t.Context(), opts); err != nil || report.Replayed != 2 || report.Before != 4 || report.Oversize != 0 {
		t.Errorf("with room for them: %+v, %v", report, err)
	}
}

// A record among the replays that is not pacer's, or of another format, stops a replay, which could send anything twice; who
// only looks is told.
func TestForeignRecordAmongTheReplays(t *testing.T) {
	for _, value := range []string{"payload", `{"format":2}`} {
		t.Run(value, func(t *testing.T) { checkForeignRecord(t, value) })
	}
}

func checkForeignRecord(t *testing.T, value string) {
	t.Helper()
	client := brokertest.Cluster(t, kfake.SeedTopics(1, "jobs"))
	c := newCemetery(t, client, "t.")
	c.bury(job(0, "spring"), delivery.ReasonRefused)
	if _, err := c.producer.Publish(t.Context(), c.Replays, broker.All([]delivery.Record{{Value: []byte(value)}}), nil); err != nil {
		t.Fatal(err)
	}
	if report, err := Replay(t.Context(), ReplayOptions{Topics: c.Topics, Ingress: []string{"jobs"}}); !errors.Is(err, errForeignNote) {
		t.Errorf("replayed: %+v, %v", report, err)
	}
	var said, listed []string
	opts := Options{Topics: c.Topics, Unmarked: func(err error) { said = append(said, err.Error()) }}
	var place Place
	err := List(t.Context(), opts, func(d Letter) error {
		listed, place = append(listed, d.JobID), d.Place
		return nil
	})
	if err != nil || !slices.Equal(listed, []string{"spring-0"}) || len(said) != 1 || !strings.Contains(said[0], "t.replays/0/0 is not pacer's") {
		t.Fatalf("listed %q, said %q, %v", listed, said, err)
	}
	if d, err := Read(t.Context(), opts, place); err != nil || d.JobID != "spring-0" || len(said) != 2 {
		t.Errorf("shown %+v, said %q, %v", d, said, err)
	}
}

// TestExpired: a letter is not replayed by accident when its job's own time is over, or its campaign's job_ttl, of which the record says nothing. A
// job that died because its campaign was completed is replayed, unless its own time is over.
func TestExpired(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		reason  delivery.Reason
		detail  string
		expires time.Time
		want    bool
	}{
		{delivery.ReasonExpired, "", time.Time{}, true},
		{delivery.ReasonExpired, delivery.DetailCompleted, time.Time{}, false},
		{delivery.ReasonExpired, delivery.DetailCompleted, now.Add(time.Hour), false},
		{delivery.ReasonExpired, delivery.DetailCompleted, now, true},
		{delivery.ReasonRefused, "", now, true},
		{delivery.ReasonRefused, "", now.Add(time.Hour), false},
	} {
		if d := (Letter{Reason: c.reason, Detail: c.detail, ExpiresAt: c.expires}); d.expired(now) != c.want {
			t.Errorf("%+v: %t", c, !c.want)
		}
	}
}

func TestReplayedSpansOverlapAndOutliveTheirTopic(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	letter := func(offset int64, at time.Time) *Letter { return &Letter{Place: Place{Offset: offset}, At: at} }
	done := make(replays)
	for _, spans := range [][2]int64{{0, 99}, {10, 12}, {200, 201}, {15, 15}} {
		var n replayNote
		for o := spans[0]; o <= spans[1]; o++ {
			n.note(letter(o, noon))
		}
		if len(n.Letters) != 1 || len(n.Letters[0].Spans) != 1 {
			t.Fatalf("note %+v", n)
		}
		done.add(&n)
	}
	done.index()
	for offset, want := range map[int64]bool{0: true, 11: true, 13: true, 15: true, 99: true, 100: false, 199: false, 201: true, 202: false} {
		if got := done.covers(letter(offset, noon)); got != want {
			t.Errorf("offset %d replayed: %v", offset, got)
		}
		if done.covers(letter(offset, noon.Add(time.Second))) {
			t.Errorf("offset %d of a topic that was made anew counts as replayed", offset)
		}
	}
	if done.covers(&Letter{Place: Place{Partition: 1}, At: noon}) {
		t.Error("another partition counts as replayed")
	}
}

// TestTopicsThatAreMissing: a replay needs its memory, a list does not. Both need the dead letters.
func TestTopicsThatAreMissing(t *testing.T) {
	topics := Topics{Client: brokertest.Cluster(t, kfake.SeedTopics(1, "jobs", "t.dead")), Letters: "t.dead", Replays: "t.replays"}
	list := func() error { return List(t.Context(), Options{Topics: topics}, func(Letter) error { return nil }) }
	if err := list(); err != nil {
		t.Errorf("a list needs no memory: %v", err)
	}
	_, replay := Replay(t.Context(), ReplayOptions{Topics: topics, Ingress: []string{"jobs"}})
	topics.Letters = "pacer.dead"
	for topic, err := range map[string]error{"t.replays": replay, "pacer.dead": list()} {
		if !errors.Is(err, broker.ErrNoTopic) || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "migrate up") {
			t.Errorf("without %s: %v", topic, err)
		}
	}
	if _, err := Replay(t.Context(), ReplayOptions{Topics: topics}); err == nil {
		t.Error("a replay to no topic of ingress was accepted")
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		client := brokertest.Cluster(t, kfake.SeedTopics(2, "jobs"))
		alter(t, client, "200000")
		checkDeadLetters(t, newCemetery(t, client, "t."), "jobs")
		return
	}
	brokers := testservices.Kafka(t)
	ingress := testservices.Topic(t, brokers, "deadletter-jobs", 2, kafka.ConfigEntry{ConfigName: "max.message.bytes", ConfigValue: "200000"})
	client := brokertest.Dial(t, broker.Options{Brokers: brokers})
	c := newCemetery(t, client, testservices.Unique("deadletter")+".")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := client.DeleteTopics(ctx, []string{c.Letters, c.Replays}); err != nil {
			t.Logf("delete topics: %v", err)
		}
	})
	checkDeadLetters(t, c, ingress)
}

// alter sets how large a record of the ingress topic may be.
func alter(t testing.TB, client *broker.Client, bytes string) {
	t.Helper()
	if err := client.Configure(t.Context(), "jobs", map[string]string{"max.message.bytes": bytes}); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
