package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
)

// manyLanes is the number of lanes of tests of large backlogs.
const manyLanes = 32

// inLanes counts the records of a campaign by lane.
func (s *stack) inLanes(campaign string) map[int]int {
	s.t.Helper()
	counts := map[int]int{}
	s.each("lanes", func(_ string, r delivery.Record) {
		if r.Header("pacer-campaign") == campaign {
			counts[r.Partition]++
		}
	})
	return counts
}

// settledBy is how many jobs of a campaign a daemon delivered.
func (d *daemon) settledBy(campaign string) int {
	return int(d.metric(fmt.Sprintf(`pacer_jobs_settled_total{campaign=%q,outcome="delivered"}`, campaign)))
}

// TestALargeBacklogIsSentByAll: a large backlog lies in all lanes. Two daemons send it, each job once, after one hop at most. Then new
// jobs go direct again. A few jobs lie in one lane.
func TestALargeBacklogIsSentByAll(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4, lanes: manyLanes})
	const rate, published, direct = 2000, 12_000, 1000
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, status) VALUES ('large', 1, 'paused'), ('small', 20, 'paused')`)
	daemons := s.fleet("one", "two")
	s.publish(append(ofCampaign("large", 0, published), ofCampaign("small", 0, 200)...))
	s.await(30*time.Second, "the overflow", func() bool {
		return s.written(requeue.LaneTopic(s.prefix)) >= published+200
	})
	counts := s.inLanes("large")
	if len(counts) < manyLanes/2 {
		t.Fatalf("the backlog lies in %d of %d lanes", len(counts), manyLanes)
	}
	first := delivery.OrderOfLanes("small", manyLanes).Lane(0)
	if counts := s.inLanes("small"); len(counts) != 1 || counts[first] != 200 {
		t.Errorf("the few jobs lie in lanes %v, want them in %d", counts, first)
	}
	s.await(15*time.Second, "one to show what waits in all lanes", func() bool {
		return max(daemons[0].backlogOf("large"), daemons[1].backlogOf("large")) == published
	})
	lanes := slices.Sorted(maps.Keys(counts))
	s.run("publish", "--campaign", "large", "--count", fmt.Sprint(direct), "--direct")
	for i := range manyLanes / 8 {
		if lane := delivery.OrderOfLanes("large", manyLanes).Lane(i); !slices.Contains(lanes, lane) {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	s.shownSenders("large", lanes, len(daemons))
	s.await(10*time.Second, "its lanes to be shown", func() bool {
		return strings.Contains(s.run("campaign", "show", "large"), fmt.Sprintf("%d: %s", len(lanes), notation.List(lanes)))
	})

	s.sql(`UPDATE pacer.campaigns SET status = 'active', send_rate = $1`, rate)
	s.await(60*time.Second, "every job", func() bool {
		n, _ := s.receiver.accepted("large")
		return n == published+direct
	})
	s.withinBound("large", rate)
	for _, d := range daemons {
		if n := d.settledBy("large"); n < (published+direct)/10 {
			t.Errorf("%s sent %d of %d jobs", d.name, n, published+direct)
		}
	}
	before, more := int64(0), 0
	s.await(60*time.Second, "new jobs to go direct", func() bool {
		was := before
		before = s.written(requeue.LaneTopic(s.prefix))
		s.publish(ofCampaign("large", published+direct+more, 1))
		time.Sleep(500 * time.Millisecond)
		more++
		return before == was
	})
	for _, d := range daemons {
		d.stop()
	}
	s.allOnce("large", published+direct+more)
	if hops := s.maxHops(); hops > 1 {
		t.Errorf("a job made %d hops", hops)
	}
}

// shownSenders awaits that each lane of the campaign is shown with one daemon, and that each daemon has one.
func (s *stack) shownSenders(campaign string, lanes []int, daemons int) {
	s.t.Helper()
	var read []int
	s.await(15*time.Second, "explain to say who sends "+campaign, func() bool {
		var v struct {
			Senders []struct {
				Daemon string
				Lanes  []int
			}
		}
		noError(s.t, json.Unmarshal([]byte(s.run("explain", campaign, "--json")), &v))
		read = nil
		for _, one := range v.Senders {
			if len(one.Lanes) == 0 {
				return false
			}
			read = append(read, one.Lanes...)
		}
		slices.Sort(read)
		return len(v.Senders) == daemons && slices.Equal(read, lanes)
	})
	if out := s.run("campaign", "show", campaign); strings.Count(out, "jobs in memory, ") != daemons || !strings.Contains(out, "sent by") {
		s.t.Errorf("who sends it is not shown: %s", out)
	}
}
