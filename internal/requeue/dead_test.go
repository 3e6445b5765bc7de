package requeue

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// bury writes dead letters of two campaigns through a relay: six refused, two undecodable, one expired, and one
// that was cut.
func bury(t *testing.T, client *kafka.Client, prefix, ingress string) {
	r := start(t, Options{Client: client, Prefix: prefix, Lanes: 8})
	s := newSource(ingress + "/0")
	put := func(offset int64, campaign string, reason delivery.Reason, change func(*delivery.Job)) {
		job := s.job(offset, campaign)
		job.Origin.Topic, job.Attempt, job.Hops = ingress, 3, 1
		job.Headers = []delivery.Header{{Key: "x", Value: []byte("kept")}}
		if change != nil {
			change(job)
		}
		r.Put(job, delivery.Destination{Kind: delivery.ToDead, Reason: reason, Detail: "why not"})
		eventually(t, "buried", func() bool { _, ok := s.outcome(offset); return ok })
	}
	for i := range int64(3) {
		put(i, "spring", delivery.ReasonRefused, nil)
		put(10+i, "autumn", delivery.ReasonRefused, nil)
	}
	for i := range int64(2) {
		put(20+i, "", delivery.ReasonUndecodable, func(j *delivery.Job) {
			j.Defect, j.Payload = delivery.ReasonUndecodable, []byte("{broken")
		})
	}
	put(30, "spring", delivery.ReasonExpired, func(j *delivery.Job) { j.ExpiresAt = time.Now().Add(-time.Hour) })
	put(31, "spring", delivery.ReasonRefused, func(j *delivery.Job) { j.Payload = make([]byte, 400_000) })
}

func checkDeadLetters(t *testing.T, client *kafka.Client, prefix, ingress string) {
	bury(t, client, prefix, ingress)
	list := func(opts DeadOptions) (letters []DeadLetter) {
		t.Helper()
		opts.Client, opts.Prefix = client, prefix
		if err := ListDead(t.Context(), opts, func(d DeadLetter) error { letters = append(letters, d); return nil }); err != nil {
			t.Fatal(err)
		}
		return letters
	}
	for _, c := range []struct {
		opts DeadOptions
		want int
	}{
		{DeadOptions{}, 10},
		{DeadOptions{Limit: 4}, 4},
		{DeadOptions{DeadFilter: DeadFilter{Campaign: "spring"}}, 5},
		{DeadOptions{DeadFilter: DeadFilter{Reason: delivery.ReasonUndecodable}}, 2},
		{DeadOptions{DeadFilter: DeadFilter{Campaign: "spring", Reason: delivery.ReasonRefused}}, 4},
		{DeadOptions{DeadFilter: DeadFilter{Campaign: "spring", Reason: delivery.ReasonRefused}, Limit: 2}, 2},
		{DeadOptions{DeadFilter: DeadFilter{Campaign: "winter"}}, 0},
		{DeadOptions{DeadFilter: DeadFilter{JobID: "autumn-11"}}, 1},
		{DeadOptions{DeadFilter: DeadFilter{Since: time.Now().Add(-time.Hour)}}, 10},
		{DeadOptions{DeadFilter: DeadFilter{Since: time.Now().Add(time.Hour)}}, 0},
		{DeadOptions{DeadFilter: DeadFilter{Until: time.Now().Add(-time.Hour)}}, 0},
	} {
		if got := len(list(c.opts)); got != c.want {
			t.Errorf("%+v: %d letters, want %d", c.opts, got, c.want)
		}
	}
	all := list(DeadOptions{})
	d := all[0]
	if d.JobID != "spring-0" || d.Campaign != "spring" || d.Reason != delivery.ReasonRefused || d.Detail != "why not" || d.Attempts != 3 ||
		d.Origin != (delivery.Origin{Topic: ingress}) || time.Since(d.At) > time.Minute || string(d.Payload) != "payload" {
		t.Errorf("letter %+v", d)
	}
	if !slices.IsSortedFunc(all, func(a, b DeadLetter) int {
		return a.At.Truncate(time.Millisecond).Compare(b.At.Truncate(time.Millisecond))
	}) {
		t.Error("letters are not in order of time")
	}
	stop := errors.New("enough")
	if err := ListDead(t.Context(), DeadOptions{Client: client, Prefix: prefix}, func(DeadLetter) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the reader's error was lost: %v", err)
	}

	checkReplay(t, client, prefix, ingress)
}

// replayer replays onto an ingress topic.
func replayer(t *testing.T, client *kafka.Client, prefix, ingress string) func(ReplayOptions) ReplayReport {
	return func(opts ReplayOptions) ReplayReport {
		t.Helper()
		opts.Client, opts.Prefix, opts.Ingress = client, prefix, []string{"elsewhere", ingress}
		report, err := Replay(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		report.GoOn = time.Time{}
		return report
	}
}

func checkReplay(t *testing.T, client *kafka.Client, prefix, ingress string) {
	replay := replayer(t, client, prefix, ingress)
	spring := DeadFilter{Campaign: "spring"}
	want := ReplayReport{
		Matched: 5, Replayed: 3, Truncated: 1, Expired: 1, Topics: map[string]int{ingress: 3},
		Groups: map[DeadGroup]int{{"spring", delivery.ReasonRefused}: 3},
	}
	if got := replay(ReplayOptions{DeadFilter: spring, DryRun: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("dry run %+v, want %+v", got, want)
	}
	if n := len(readAll(t, client, ingress)); n != 0 {
		t.Fatalf("a dry run wrote %d records", n)
	}
	if got := replay(ReplayOptions{DeadFilter: spring}); !reflect.DeepEqual(got, want) {
		t.Errorf("replay %+v, want %+v", got, want)
	}
	replayed := readAll(t, client, ingress)
	if len(replayed) != 3 {
		t.Fatalf("%d records replayed", len(replayed))
	}
	for _, r := range replayed {
		for _, h := range bookkeeping {
			if r.Header(h) != "" {
				t.Errorf("%s of the former life was kept: %q", h, r.Header(h))
			}
		}
		if r.Header(delivery.HeaderCampaign) != "spring" || !strings.HasPrefix(r.Header(delivery.HeaderJobID), "spring-") ||
			r.Header("x") != "kept" || string(r.Value) != "payload" || !strings.HasPrefix(r.Header(HeaderReplayedFrom), prefix+"dead/") {
			t.Errorf("replayed %q %q", r.Headers, r.Value)
		}
	}
	expired := DeadFilter{Reason: delivery.ReasonExpired}
	if got := replay(ReplayOptions{DeadFilter: expired, DropExpiry: true}); got.Replayed != 1 {
		t.Errorf("expired letters replayed: %+v", got)
	}
	all := readAll(t, client, ingress)
	if i := slices.IndexFunc(all, func(r Record) bool { return r.Header(delivery.HeaderJobID) == "spring-30" }); i < 0 || all[i].Header(delivery.HeaderExpiresAt) != "" {
		t.Errorf("the expiry was kept")
	}
	checkReplayAgain(t, client, prefix, ingress)
}

// checkReplayAgain goes on where checkReplay left off: all of spring but the truncated letter are replayed.
func checkReplayAgain(t *testing.T, client *kafka.Client, prefix, ingress string) {
	replay := replayer(t, client, prefix, ingress)
	const some = -1 // letters of one millisecond lie in no order
	for _, c := range []struct {
		what             string
		opts             ReplayOptions
		matched, done, n int
	}{
		{"a second time", ReplayOptions{DeadFilter: DeadFilter{Campaign: "spring"}, DropExpiry: true}, 5, 4, 0},
		{"a second time, dry", ReplayOptions{DeadFilter: DeadFilter{Campaign: "spring"}, DropExpiry: true, DryRun: true}, 5, 4, 0},
		{"two at a time", ReplayOptions{Limit: 2}, some, some, 2},
		{"the next two", ReplayOptions{Limit: 2, DropExpiry: true}, some, some, 2},
		{"the rest", ReplayOptions{DropExpiry: true}, 10, 8, 1},
		{"one again", ReplayOptions{DeadFilter: DeadFilter{JobID: "spring-0"}, Again: true}, 1, 0, 1},
		{"and again", ReplayOptions{DeadFilter: DeadFilter{JobID: "spring-0"}, Again: true}, 1, 0, 1},
		{"not again", ReplayOptions{DeadFilter: DeadFilter{JobID: "spring-0"}}, 1, 1, 0},
	} {
		before := len(readAll(t, client, ingress))
		got := replay(c.opts)
		if got.Replayed != c.n || c.matched != some && (got.Matched != c.matched || got.Before != c.done) {
			t.Errorf("%s: %+v, want %d matched, %d replayed before, %d now", c.what, got, c.matched, c.done, c.n)
		}
		if n := len(readAll(t, client, ingress)) - before; n != c.n {
			t.Errorf("%s: %d records written, want %d", c.what, n, c.n)
		}
	}
	open := 0
	err := ListDead(t.Context(), DeadOptions{Client: client, Prefix: prefix}, func(d DeadLetter) error {
		place, err := ReadDead(t.Context(), DeadOptions{Client: client, Prefix: prefix}, d.Place())
		if err != nil || !reflect.DeepEqual(place, d) {
			t.Errorf("read at its place: %+v, %v; listed as %+v", place, err, d)
		}
		if !d.Replayed {
			open++
		}
		return nil
	})
	if err != nil || open != 1 {
		t.Errorf("%d letters are not replayed, want the truncated one; %v", open, err)
	}
	for _, place := range []DeadPlace{{0, 99}, {7, 0}, {-1, 0}, {0, -1}} {
		if _, err := ReadDead(t.Context(), DeadOptions{Client: client, Prefix: prefix}, place); !errors.Is(err, ErrNoLetter) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

func TestReplayKeepsItsRateAndFinishesABatchWhenInterrupted(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(2, "jobs"))
	ensure(t, client, smallSpec("t.", "jobs"))
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
	s := newSource("jobs/0")
	for i := range int64(60) {
		r.Put(s.job(i, "spring"), dead)
	}
	eventually(t, "buried", func() bool { return s.count() == 60 })
	opts := ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs"}, Rate: delivery.PerSecond(100), Limit: 30}
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
	if !errors.Is(err, context.Canceled) || report.Replayed < 10 || report.Replayed > 20 || report.Doubtful != 0 || report.GoOn.IsZero() {
		t.Errorf("interrupted: %+v, %v", report, err)
	}
	interrupted := report.Replayed
	opts.Rate, opts.Progress = delivery.Rate{}, nil
	if report, err = Replay(t.Context(), opts); err != nil || report.Replayed != 30-interrupted || report.Before != 30+interrupted {
		t.Errorf("went on after %d: %+v, %v", interrupted, report, err)
	}
	seen := make(map[string]int)
	for _, r := range readAll(t, client, "jobs") {
		seen[r.Header(delivery.HeaderJobID)]++
	}
	if len(seen) != 60 || len(readAll(t, client, "jobs")) != 60 {
		t.Errorf("%d jobs in %d records", len(seen), len(readAll(t, client, "jobs")))
	}
}

// A replay that fails half-way says from where to go on, so that nothing is left out: also where one topic has taken its
// part of a batch and another, which is missing, none of older letters.
func TestReplayGoesOnBeforeWhatWasRefused(t *testing.T) {
	for i, missing := range []string{"other", "jobs"} {
		there := []string{"jobs", "other"}[i]
		_, client := fakeCluster(t, kfake.SeedTopics(1, there))
		ensure(t, client, smallSpec("t.", there))
		r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
		s := newSource("jobs/0")
		for i, topic := range []string{"other", "jobs", "other", "jobs"} {
			j := s.job(int64(i), "spring")
			j.Origin = delivery.Origin{Topic: topic, Offset: int64(i)}
			r.Put(j, dead)
			eventually(t, "buried", func() bool { return s.count() == i+1 })
		}
		var times []time.Time
		err := ListDead(t.Context(), DeadOptions{Client: client, Prefix: "t."}, func(d DeadLetter) error {
			times = append(times, d.At)
			return nil
		})
		if err != nil || len(times) != 4 {
			t.Fatalf("%v, %v", times, err)
		}
		for range 8 { // the topics of a batch have no order
			report, err := Replay(t.Context(), ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs", "other"}, Again: true})
			if !errors.Is(err, ErrNoTopic) || report.Doubtful == 0 || report.GoOn.After(times[i]) || report.GoOn.IsZero() {
				t.Errorf("%s is missing: %+v, %v; the oldest that was not written is of %s", missing, report, err, times[i])
			}
		}
	}
}

// One letter that its topic does not take is named and left out; the others are replayed, and remembered without it.
func TestReplayLeavesOutWhatIsTooLarge(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(2, "jobs"))
	alter(t, client, "jobs", confMaxMessage, "200000")
	ensure(t, client, smallSpec("t.", "jobs"))
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
	s := newSource("jobs/0")
	for i := range int64(6) {
		j := s.job(i, "spring")
		if i == 0 || i == 3 {
			j.Payload = make([]byte, 100_000)
		}
		r.Put(j, dead)
		eventually(t, "buried", func() bool { return s.count() == int(i)+1 })
	}
	alter(t, client, "jobs", confMaxMessage, "50000")
	opts := ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs"}, Limit: 3}
	report, err := Replay(t.Context(), opts)
	if err != nil || report.Replayed != 3 || report.Oversize == 0 || report.Oversize != len(report.Oversized) {
		t.Fatalf("%+v, %v", report, err)
	}
	if o := report.Oversized[0]; o.Topic != "jobs" || o.Bytes < 100_000 || o.Bytes > 101_000 {
		t.Errorf("named %+v", o)
	} else if d, err := ReadDead(t.Context(), DeadOptions{Client: client, Prefix: "t."}, o.Place); err != nil || len(d.Payload) != 100_000 || d.Replayed {
		t.Errorf("at %s lies %s of %d bytes, replayed %v, %v", o.Place, d.JobID, len(d.Payload), d.Replayed, err)
	}
	opts.Limit = 0
	if report, err = Replay(t.Context(), opts); err != nil || report.Replayed != 1 || report.Before != 3 || report.Oversize != 2 {
		t.Errorf("the rest: %+v, %v", report, err)
	}
	if n := len(readAll(t, client, "jobs")); n != 4 {
		t.Errorf("%d records, want 4", n)
	}
	alter(t, client, "jobs", confMaxMessage, "200000")
	if report, err = Replay(t.Context(), opts); err != nil || report.Replayed != 2 || report.Before != 4 || report.Oversize != 0 {
		t.Errorf("with room for them: %+v, %v", report, err)
	}
}

// A record among the replays that is not pacer's stops a replay, which could send anything twice; who only looks is told.
func TestForeignRecordAmongTheReplays(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(1, "jobs"))
	ensure(t, client, smallSpec("t.", "jobs"))
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
	s := newSource("jobs/0")
	r.Put(s.job(0, "spring"), dead)
	eventually(t, "buried", func() bool { return s.count() == 1 })
	fill(t, client, "t.replays", 1, 1)
	if report, err := Replay(t.Context(), ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs"}}); !errors.Is(err, errForeignNote) {
		t.Errorf("replayed: %+v, %v", report, err)
	}
	var said, listed []string
	opts := DeadOptions{Client: client, Prefix: "t.", Unmarked: func(err error) { said = append(said, err.Error()) }}
	var place DeadPlace
	err := ListDead(t.Context(), opts, func(d DeadLetter) error {
		listed, place = append(listed, d.JobID), d.Place()
		return nil
	})
	if err != nil || !slices.Equal(listed, []string{"spring-0"}) || len(said) != 1 || !strings.Contains(said[0], "t.replays/0/0 is not pacer's") {
		t.Fatalf("listed %q, said %q, %v", listed, said, err)
	}
	if d, err := ReadDead(t.Context(), opts, place); err != nil || d.JobID != "spring-0" || len(said) != 2 {
		t.Errorf("shown %+v, said %q, %v", d, said, err)
	}
}

// A job that has expired by its campaign's job_ttl says nothing of it itself. It is not replayed by accident either.
func TestReplayOfWhatExpiredByItsCampaign(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(1, "jobs"))
	ensure(t, client, smallSpec("t.", "jobs"))
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
	s := newSource("jobs/0")
	r.Put(s.job(0, "spring"), delivery.Destination{Kind: delivery.ToDead, Reason: delivery.ReasonExpired})
	eventually(t, "buried", func() bool { return s.count() == 1 })
	opts := ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs"}}
	if report, err := Replay(t.Context(), opts); err != nil || report.Expired != 1 || report.Replayed != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	opts.DropExpiry = true
	if report, err := Replay(t.Context(), opts); err != nil || report.Replayed != 1 {
		t.Errorf("with its expiry dropped: %+v, %v", report, err)
	}
}

func TestReplayToAnotherTopicAndByTime(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(2, "jobs", "other"))
	ensure(t, client, smallSpec("t.", "jobs", "other"))
	r := start(t, Options{Client: client, Prefix: "t.", Lanes: 8})
	s := newSource("jobs/0")
	r.Put(s.job(0, "spring"), dead)
	eventually(t, "buried", func() bool { return s.count() == 1 })
	time.Sleep(5 * time.Millisecond)
	between := time.Now()
	time.Sleep(5 * time.Millisecond)
	r.Put(s.job(1, "spring"), dead)
	eventually(t, "buried", func() bool { return s.count() == 2 })
	ids := func(f DeadFilter) (ids []string) {
		t.Helper()
		err := ListDead(t.Context(), DeadOptions{Client: client, Prefix: "t.", DeadFilter: f}, func(d DeadLetter) error {
			ids = append(ids, d.JobID)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	for _, c := range []struct {
		filter DeadFilter
		want   []string
	}{
		{DeadFilter{Since: between}, []string{"spring-1"}},
		{DeadFilter{Until: between}, []string{"spring-0"}},
		{DeadFilter{Since: between.Add(-time.Hour), Until: between.Add(time.Hour)}, []string{"spring-0", "spring-1"}},
		{DeadFilter{Since: between.Add(time.Hour)}, nil},
		{DeadFilter{JobID: "spring-1"}, []string{"spring-1"}},
	} {
		if got := ids(c.filter); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.filter, got, c.want)
		}
	}
	opts := ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs", "other"}, ToTopic: "other", DeadFilter: DeadFilter{Since: between}}
	if report, err := Replay(t.Context(), opts); err != nil || report.Topics["other"] != 1 || len(readAll(t, client, "other")) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestReplayedSpansOverlapAndOutliveTheirTopic(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	letter := func(offset int64, at time.Time) *DeadLetter { return &DeadLetter{Offset: offset, At: at} }
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
	for _, s := range done {
		s.index()
	}
	for offset, want := range map[int64]bool{0: true, 11: true, 13: true, 15: true, 99: true, 100: false, 199: false, 201: true, 202: false} {
		if got := done.covers(letter(offset, noon)); got != want {
			t.Errorf("offset %d replayed: %v", offset, got)
		}
		if done.covers(letter(offset, noon.Add(time.Second))) {
			t.Errorf("offset %d of a topic that was made anew counts as replayed", offset)
		}
	}
	if done.covers(&DeadLetter{Partition: 1, At: noon}) {
		t.Error("another partition counts as replayed")
	}
}

func TestReplayNeedsItsMemory(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(1, "jobs", "t.dead"))
	_, err := Replay(t.Context(), ReplayOptions{Client: client, Prefix: "t.", Ingress: []string{"jobs"}})
	if !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), "t.replays") || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("error %v", err)
	}
	if err := ListDead(t.Context(), DeadOptions{Client: client, Prefix: "t."}, func(DeadLetter) error { return nil }); err != nil {
		t.Errorf("a list needs no memory: %v", err)
	}
}

func TestDeadLettersInProcess(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(2, "jobs"))
	alter(t, client, "jobs", confMaxMessage, "200000")
	ensure(t, client, smallSpec("t.", "jobs"))
	checkDeadLetters(t, client, "t.", "jobs")
}

func TestDeadLetters(t *testing.T) {
	brokers := harness.Kafka(t)
	ingress := harness.Topic(t, brokers, "requeue-jobs", 2, kafka.ConfigEntry{ConfigName: confMaxMessage, ConfigValue: "200000"})
	client := dial(t, brokers)
	prefix := ownedPrefix(t, client)
	ensure(t, client, smallSpec(prefix, ingress))
	checkDeadLetters(t, client, prefix, ingress)
}

func TestReplayNeedsAnIngressTopic(t *testing.T) {
	if _, err := Replay(t.Context(), ReplayOptions{Client: newMemory("t.").client()}); err == nil {
		t.Error("accepted")
	}
}

func TestMissingDeadTopic(t *testing.T) {
	_, client := fakeCluster(t)
	err := ListDead(t.Context(), DeadOptions{Client: client}, func(DeadLetter) error { return nil })
	if !errors.Is(err, ErrNoTopic) || !strings.Contains(err.Error(), "pacer.dead") || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("error %v", err)
	}
}

// A scan waits for a partition that has no leader for a moment.
func TestScanOutlivesAnElection(t *testing.T) {
	cluster, client := fakeCluster(t, kfake.SeedTopics(1, "jobs"))
	fill(t, client, "jobs", 1, 3)
	asked := 0
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked++; asked > 2 {
			return nil, nil, false
		}
		in := req.(*kmsg.ListOffsetsRequest)
		res := in.ResponseKind().(*kmsg.ListOffsetsResponse)
		topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		p.ErrorCode = int16(kafka.NotLeaderForPartition)
		topic.Topic, topic.Partitions = in.Topics[0].Topic, append(topic.Partitions, p)
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
	n := 0
	err := Scan(t.Context(), client, "jobs", 0, FromStart, func(Record) error { n++; return nil })
	if err != nil || n != 3 || asked < 3 {
		t.Errorf("%d records, asked %d times: %v", n, asked, err)
	}
}

func TestScanStopsAtTheEndOfTheCall(t *testing.T) {
	_, client := fakeCluster(t, kfake.SeedTopics(1, "jobs"))
	p, err := NewProducer(ProducerOptions{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		t.Helper()
		if _, err := p.Publish(t.Context(), "jobs", All(make([]Record, n)), nil); err != nil {
			t.Fatal(err)
		}
	}
	publish(10)
	var got []int64
	err = Scan(t.Context(), client, "jobs", 0, 4, func(r Record) error {
		if len(got) == 0 {
			publish(5) // meanwhile
		}
		got = append(got, r.Offset)
		return nil
	})
	if err != nil || !slices.Equal(got, []int64{4, 5, 6, 7, 8, 9}) {
		t.Errorf("read %v, %v", got, err)
	}
	if err := Scan(t.Context(), client, "jobs", 0, 99, func(Record) error { t.Error("beyond the end"); return nil }); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Scan(ctx, client, "jobs", 0, 0, func(Record) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
