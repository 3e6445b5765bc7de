package deadletter

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/brokertest"
)

// A letter that was written twice is listed once, and replayed once, also by its place and then again. A job that has another origin,
// or died again after another attempt, has a letter of its own.
func TestALetterThatWasWrittenTwice(t *testing.T) {
	t.Parallel()
	client := brokertest.Cluster(t, kfake.SeedTopics(1, "jobs"))
	c := newCemetery(t, client, "t.")
	for offset := range int64(3) { // a batch whose answer was lost
		c.bury(job(offset, "spring"), delivery.ReasonRefused)
	}
	for offset := range int64(3) {
		c.bury(job(offset, "spring"), delivery.ReasonRefused)
	}
	anew := job(2, "spring") // of the topic that was made after that of the others was deleted
	anew.Origin.TopicID = delivery.NewTopicID([16]byte{1})
	later := job(2, "spring")
	later.Attempt = 1
	moved := job(2, "spring")
	moved.Hops = 1
	for _, j := range []*delivery.Job{anew, later, moved} {
		c.bury(j, delivery.ReasonRefused)
	}
	crashed := job(0, "spring")
	c.buryAt(crashed, delivery.ReasonExpired, time.Now())

	var listed []Place
	if err := Newest(t.Context(), Options{Topics: c.Topics}, func(d Letter) error { listed = append(listed, d.Place); return nil }); err != nil {
		t.Fatal(err)
	}
	at := broker.HashPartition("spring", 2)
	if want := []Place{{at, 8}, {at, 7}, {at, 6}, {at, 2}, {at, 1}, {at, 0}}; !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
	left := map[Group]int{}
	c.Left = func(_ context.Context, letters []*Letter) {
		for _, d := range letters {
			left[Group{d.Campaign, d.Reason}]++
		}
	}
	opts := ReplayOptions{Topics: c.Topics, Ingress: []string{"jobs"}, Filter: Filter{Places: listed[3:4]}}
	if report, err := Replay(t.Context(), opts); err != nil || report.Replayed != 1 {
		t.Errorf("by its place: %+v, %v", report, err)
	}
	opts.Places = nil
	if report, err := Replay(t.Context(), opts); err != nil || report.Replayed != 5 || report.Before != 1 {
		t.Errorf("then all: %+v, %v", report, err)
	}
	opts.DryRun, opts.Again = true, true
	if _, err := Replay(t.Context(), opts); err != nil {
		t.Error(err)
	}
	if opts.DryRun = false; left[Group{"spring", delivery.ReasonRefused}] != 6 || len(left) != 1 {
		t.Errorf("%v have left", left)
	}
	if n := len(brokertest.ReadAll(t, client, "jobs")); n != 6 {
		t.Errorf("%d jobs are published, want 6", n)
	}
	if report, err := Replay(t.Context(), opts); err != nil || report.Replayed != 6 || left[Group{"spring", delivery.ReasonRefused}] != 6 {
		t.Errorf("again: %+v, %v; %v have left", report, err, left)
	}
}

// The memory of letters is bounded, and the last ones are in it.
func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	var s seen
	letter := func(i int) *Letter { return &Letter{Origin: delivery.Origin{Topic: "jobs", Offset: int64(i)}} }
	for i := range 3 * maxSeen {
		if s.repeats(letter(i)) || i >= maxSeen && !s.repeats(letter(i-maxSeen+1)) {
			t.Fatalf("letter %d", i)
		}
	}
	if n := len(s.last) + len(s.before); n > 2*maxSeen || s.repeats(letter(0)) {
		t.Errorf("%d letters are remembered", n)
	}
	for range 2 {
		if s.repeats(&Letter{}) {
			t.Error("a letter without an origin")
		}
	}
}
