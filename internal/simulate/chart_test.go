package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

const maxPicture = 200_000 // bytes

// pictures draws everything there is of a load.
func pictures(t *testing.T, load *Load) []string {
	t.Helper()
	results, err := Run(t.Context(), load, Algorithms())
	if err != nil {
		t.Fatal(err)
	}
	c := NewChart(load, results)
	var all []string
	var b bytes.Buffer
	if err := c.Overview(&b); err != nil {
		t.Fatal(err)
	}
	all = append(all, b.String())
	for i := range results {
		b.Reset()
		if err := c.One(&b, i); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.String())
	}
	return all
}

func TestPicturesAreSmallAndTheSameEachTime(t *testing.T) {
	t.Parallel()
	for _, load := range []*Load{
		{Rate: 1000, Jobs: 10_000, Idle: parse(t, usual)},
		{Rate: 1, Jobs: 1},
		{Rate: 7, Jobs: 3000, Idle: parse(t, "10s:1s,13s:500ms,599s:1s,600s:5s")},
		{Rate: 90, Jobs: 40_000},
	} {
		first, again := pictures(t, load), pictures(t, load)
		for i, picture := range first {
			if picture != again[i] {
				t.Errorf("%+v: picture %d differs from one time to the next", load, i)
			}
			if len(picture) > maxPicture {
				t.Errorf("%+v: picture %d has %d bytes", load, i, len(picture))
			}
			if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
				t.Errorf("%+v: picture %d has no place for something", load, i)
			}
			for d := xml.NewDecoder(strings.NewReader(picture)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%+v: picture %d: %v", load, i, err)
				}
			}
		}
	}
}

func TestPicturesSayWhatTheyShow(t *testing.T) {
	t.Parallel()
	overview := pictures(t, &Load{Rate: 1000, Jobs: 10_000, Idle: parse(t, usual)})[0]
	for _, text := range []string{
		"fixed window: at most 2,000 in a second", "pacer&#39;s slots: at most 1,000 in a second", "sent per 100ms",
		"limit", "seconds",
	} {
		if !strings.Contains(overview, ">"+text+"<") {
			t.Errorf("the overview lacks %q", text)
		}
	}
	if n := strings.Count(overview, "in the second before"); n != 1 {
		t.Errorf("%d legends", n)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestAPictureThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	load := &Load{Rate: 1, Jobs: 1}
	results, err := Run(t.Context(), load, Algorithms()[:1])
	if err != nil {
		t.Fatal(err)
	}
	if err := NewChart(load, results).One(full{}, 0); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Fatal(err)
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12_345: "12,345", 1_234_567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}
