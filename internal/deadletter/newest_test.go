package deadletter

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/testservices/brokertest"
)

// TestNewest: the newest letters come first, whichever partition they are in, and however many portions have to be read for them.
func TestNewest(t *testing.T) {
	t.Parallel()
	c := newCemetery(t, brokertest.Cluster(t, kfake.SeedTopics(1, "jobs", "other")), "t.")
	noon := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var parts [2][]delivery.Record
	const letters = 100
	for i := range int64(letters) { // two thirds in one partition, which is more than a portion
		to := delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonRefused, Detail: "why not"}
		r := new(record.Encoder).Encode(job(i, []string{"autumn", "spring"}[i%2]), to, noon.Add(time.Duration(i)*time.Second))
		p := min(i%3, 1)
		parts[p] = append(parts[p], r)
	}
	for p, records := range parts {
		if _, err := c.producer.PublishTo(t.Context(), []broker.Partition{{Topic: c.Letters, ID: p}}, broker.All(records), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		opts    Options
		want    int64 // letters
		scanned int
		err     error
	}{
		{"all", Options{}, letters, letters, nil}, {"as many as there are", Options{MaxScanned: letters}, letters, letters, nil},
		{"some", Options{MaxScanned: 70}, 70, 70, ErrMore}, {"few", Options{Limit: 3}, 3, 3, nil},
		{"since", Options{Filter: Filter{Since: noon.Add(90 * time.Second)}}, 10, 10, nil},
		{"since a time whose number means an edge", Options{Filter: Filter{Since: time.UnixMilli(-1)}}, letters, letters, nil},
		{"none since", Options{Filter: Filter{Since: noon.Add(time.Hour)}}, 0, 0, nil},
	} {
		var got, want []string
		scanned := 0
		tt.opts.Topics, tt.opts.Scanned = c.Topics, &scanned
		err := Newest(t.Context(), tt.opts, func(d Letter) error {
			got = append(got, d.JobID)
			if d.Payload != nil || d.Headers != nil || d.Detail != "why not" {
				t.Errorf("%s: the letter is %+v", tt.name, d)
			}
			return nil
		})
		for i := range tt.want {
			want = append(want, job(letters-1-i, []string{"autumn", "spring"}[(letters-1-i)%2]).ID)
		}
		if !errors.Is(err, tt.err) || scanned != tt.scanned || !slices.Equal(got, want) {
			t.Errorf("%s: %d were read, %v: %q, want %q", tt.name, scanned, err, got, want)
		}
	}
	paged(t, c, letters)
	enough, first := errors.New("enough"), ""
	err := Newest(t.Context(), Options{Topics: c.Topics, Filter: Filter{Campaign: "autumn"}}, func(d Letter) error { first = d.JobID; return enough })
	if !errors.Is(err, enough) || first != "autumn-98" {
		t.Errorf("the newest one of autumn is %s, %v", first, err)
	}
	// The count of a dry run is bounded as well.
	dry := ReplayOptions{Topics: c.Topics, Ingress: []string{"jobs"}, DryRun: true, Filter: Filter{Campaign: "winter"}, MaxScanned: 99}
	if report, err := Replay(t.Context(), dry); !errors.Is(err, ErrMore) || report.Matched != 0 {
		t.Errorf("a dry run of too many: %+v, %v", report, err)
	}
	dry.MaxScanned = letters
	if _, err := Replay(t.Context(), dry); err != nil {
		t.Errorf("a dry run of all: %v", err)
	}
	some := ReplayOptions{Topics: c.Topics, Ingress: []string{"jobs", "other"}, ToTopic: "other"}
	some.Since, some.Until = noon.Add(10*time.Second), noon.Add(20*time.Second)
	report, err := Replay(t.Context(), some)
	if n := len(brokertest.ReadAll(t, c.Client, "other")); err != nil || report.Topics["other"] != 10 || n != 10 {
		t.Errorf("of ten seconds, to another topic: %d records, %+v, %v", n, report, err)
	}
}

// paged reads all letters in pages, each from the end of the one before. None is left out and none comes twice, whether a page ends
// because it is full, because enough was read, or while some are written.
func paged(t *testing.T, c *cemetery, letters int64) {
	t.Helper()
	for _, o := range []Options{{Limit: 7}, {MaxScanned: 33}, {Limit: 7, Filter: Filter{Campaign: "spring"}, MaxScanned: 10}} {
		o.Topics = c.Topics
		var got []Place
		text := ""
		for pages := 0; ; pages++ {
			var err error
			if o.Before, err = ParsePosition(text); err != nil || pages > 100 {
				t.Fatalf("page %d after %s: %v", pages, text, err)
			}
			var reached Position
			o.Reached = &reached
			before := len(got)
			err = Newest(t.Context(), o, func(d Letter) error { got = append(got, d.Place); return nil })
			if err != nil && !errors.Is(err, ErrMore) {
				t.Fatal(err)
			}
			if text = reached.String(); len(got) == before && err == nil {
				break
			}
		}
		want := int(letters)
		if o.Campaign != "" {
			want /= 2
		}
		seen := map[Place]bool{}
		for _, p := range got {
			seen[p] = true
		}
		if len(got) != want || len(seen) != want {
			t.Errorf("%+v: %d letters, %d different ones; want %d", o.Filter, len(got), len(seen), want)
		}
	}
	for _, wrong := range []string{"AA", "?", "1_", "-1", "1__2", "1.2", "99999999999999999999"} {
		if p, err := ParsePosition(wrong); err == nil {
			t.Errorf("%s is %v", wrong, p)
		}
	}
}
