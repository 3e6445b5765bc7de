package test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFinishBy: jobs are done by their time at an even rate, also after a pause and if more come; what cannot be done in time is said at once.
func TestFinishBy(t *testing.T) {
	t.Parallel()
	const jobs, window = 300, 18 * time.Second
	s := newStack(t, stackOptions{partitions: 4})
	s.startTwo()
	begun, from := time.Now(), s.receiver.now()
	by := begun.Add(window)
	at := func(after time.Duration) { time.Sleep(time.Until(begun.Add(after))) }
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, finish_by) SELECT id, 200, $1 FROM unnest('{even,pause,more}'::text[]) id`, by)
	s.publish(mix(map[string]int{"even": jobs, "pause": jobs, "more": jobs}))
	at(window / 3)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'pause'`)
	s.publish(mix(map[string]int{"more": jobs}))
	at(window / 2)
	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'pause'`)
	type plan struct {
		Jobs   int      `json:"jobs"`
		Needed *float64 `json:"rate_needed"`
		Late   *struct {
			Limit string `json:"limit"`
		} `json:"late"`
	}
	var is, slow plan
	s.unmarshal(s.run("plan", "even", "--json"), &is)
	if is.Needed == nil || *is.Needed < 8 || *is.Needed > 60 || is.Jobs == 0 || is.Late != nil {
		t.Errorf("plan: %+v", is)
	}
	s.unmarshal(s.run("plan", "even", "--rate", "1/m", "--json"), &slow)
	if slow.Late == nil || slow.Late.Limit != "send_rate" {
		t.Errorf("plan at 1/m: %+v", slow)
	}
	at(window)
	until := s.receiver.now()
	for id, want := range map[string]int{"even": jobs, "pause": jobs, "more": 2 * jobs} {
		if done := s.between(id, from, until); done != want {
			t.Errorf("%s: %d of %d jobs are done by the time", id, done, want)
			continue
		}
		list := s.receiver.arrivals(id)
		t.Logf("%s: done %.1f s before the time", id, float64(until-list[len(list)-1].at)/1e6)
	}
	var counts []int
	sum := 0
	for second := int64(4); second < 14; second++ { // the first ones are needed to count the jobs
		n := s.between("even", from+second*1_000_000, from+(second+1)*1_000_000)
		counts, sum = append(counts, n), sum+n
	}
	even := slices.Sorted(slices.Values(counts))[1:] // the machine may have stood still in one
	mean := float64(sum-slices.Min(counts)) / float64(len(even))
	if off := max(float64(slices.Max(even))-mean, mean-float64(slices.Min(even))); off > math.Max(2, mean*0.2) {
		t.Errorf("not even: %v in each second", counts)
	}
	t.Logf("%v in each second", counts)
	var recorded int
	if err := s.db.QueryRow(context.Background(), `SELECT count(*) FROM pacer.campaign_changes WHERE new ? 'finish_rate'`).Scan(&recorded); err != nil || recorded > 0 {
		t.Errorf("%d changes of rates by daemons are recorded, %v", recorded, err)
	}
	if said := s.run("campaign", "create", "slow", "--rate", "1/m", "--expected-total", "1000", "--finish-by", time.Now().Add(time.Hour).Format(time.RFC3339)); !strings.Contains(said, "after its finish_by: send_rate is in the way") {
		t.Errorf("a campaign that will be late: %s", said)
	}
	if said, err := s.try("campaign", "set", "slow", "--finish-by", "2026-01-01T18:00"); err == nil || strings.Count(said, "\n") != 1 || !strings.Contains(said, "finish_by") {
		t.Errorf("a time that has passed: %s", said)
	}
}
