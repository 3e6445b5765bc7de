package requeue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

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

func checkReplay(t *testing.T, client *kafka.Client, prefix, ingress string) {
	replay := func(opts ReplayOptions) ReplayReport {
		t.Helper()
		opts.Client, opts.Prefix, opts.Ingress = client, prefix, []string{"elsewhere", ingress}
		report, err := Replay(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	spring := DeadFilter{Campaign: "spring"}
	want := ReplayReport{Matched: 5, Replayed: 3, Truncated: 1, Expired: 1, Topics: map[string]int{ingress: 3}}
	if got := replay(ReplayOptions{DeadFilter: spring, DryRun: true}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("dry run %+v, want %+v", got, want)
	}
	if n := len(readAll(t, client, ingress)); n != 0 {
		t.Fatalf("a dry run wrote %d records", n)
	}
	if got := replay(ReplayOptions{DeadFilter: spring}); fmt.Sprint(got) != fmt.Sprint(want) {
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
			r.Header("x") != "kept" || string(r.Value) != "payload" {
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
	undecodable := DeadFilter{Reason: delivery.ReasonUndecodable}
	if got := replay(ReplayOptions{DeadFilter: undecodable, Limit: 1}); got.Replayed != 1 || got.Matched != 1 {
		t.Errorf("limited replay: %+v", got)
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
	if !errors.Is(err, errNoTopic) || !strings.Contains(err.Error(), "pacer.dead") {
		t.Errorf("error %v", err)
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
