package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseIdle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want, says string }{
		{"", "[]", ""},
		{"  ", "[]", ""},
		{"4s:500ms", "[4s:500ms]", ""},
		{" 4s:500ms , 6s:1s", "[4s:500ms 6s:1s]", ""},
		{"0s:1us,1us:1us", "[0s:1us 1us:1us]", ""},
		{"4s", "", "as in 4s:500ms"},
		{"4s:500ms,", "", "as in 4s:500ms"},
		{"4:500ms", "", "a time such as 4s"},
		{"4s:half", "", "a time such as 500ms"},
		{"-1s:1s", "", "a time such as 4s"},
		{"11m:1s", "", "begins outside"},
		{"1s:0s", "", "more than nothing"},
		{"1s:-1s", "", "a time such as 500ms"},
		{"1s:11m", "", "at most 10m"},
		{"1s:1500ns", "", "whole microseconds"},
		{"4s:3s,6s:1s", "", "6s:1s must come after the pause before it, which ends at 7s"},
		{"6s:1s,4s:500ms", "", "must come after"},
		{strings.Repeat("1s:1s,", 40), "", "at most 32 pauses"},
	} {
		got, err := ParseIdle(c.text)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q says %v, want %q", c.text, err, c.says)
		} else if err == nil && fmt.Sprint(got) != c.want {
			t.Errorf("%q is %v, want %s", c.text, got, c.want)
		}
	}
}

func TestLoadsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		load Load
		says string
	}{
		{Load{Rate: 1000, Jobs: 10_000}, ""},
		{Load{Rate: 1, Jobs: 600}, ""},
		{Load{Rate: maxRate, Jobs: maxJobs}, ""},
		{Load{Rate: 0, Jobs: 1}, "rate 0"},
		{Load{Rate: maxRate + 1, Jobs: 1}, "rate 50001"},
		{Load{Rate: 1, Jobs: 0}, "jobs 0"},
		{Load{Rate: 1, Jobs: -1}, "jobs -1"},
		{Load{Rate: 1, Jobs: maxJobs + 1}, "jobs 1000001"},
		{Load{Rate: 1, Jobs: 601}, "more than 10m"},
		{Load{Rate: 1, Jobs: 600, Idle: []Pause{{0, time.Second}}}, "more than 10m"},
		{Load{Rate: 1, Jobs: 1, Idle: []Pause{{0, time.Second}, {0, time.Second}}}, "idle 0s:1s must come after"},
		{Load{Rate: 1, Jobs: 1, Idle: make([]Pause, maxPauses+1)}, "idle at most 32 pauses"},
	} {
		if err := c.load.Validate(); (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v says %v, want %q", c.load, err, c.says)
		}
		if _, err := Run(t.Context(), &c.load, nil); (err != nil) != (c.says != "") {
			t.Errorf("%+v runs with %v", c.load, err)
		}
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	all := strings.Join(namesOf(Algorithms()), " ")
	for _, c := range []struct{ names, want string }{
		{"", all},
		{"slots", "slots"},
		{"slots gcra slots", "gcra slots"},
		{"token-bucket", "token-bucket-empty token-bucket-full"},
		{"sliding fixed", "fixed-window sliding-window sliding-log sliding-ring"},
		{all, all},
	} {
		got, err := Select(strings.Fields(c.names))
		if err != nil || !slices.Equal(namesOf(got), strings.Fields(c.want)) {
			t.Errorf("%q is %v, %v, want %s", c.names, namesOf(got), err, c.want)
		}
	}
	for _, name := range []string{"", "slot", "token-", "SLOTS", "slots "} {
		says := fmt.Sprintf("%q; there are leaky-bucket, ", name)
		if _, err := Select([]string{"gcra", name}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q says %v", name, err)
		}
	}
}
