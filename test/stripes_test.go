package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// stripedLanes is the number of lanes of tests in which a campaign may have four.
const stripedLanes = 32

// stripes are the lanes of a campaign.
func (s *stack) stripes(campaign string) (lanes []int) {
	s.t.Helper()
	err := s.db.QueryRow(s.t.Context(), `SELECT ARRAY(
    SELECT lane FROM pacer.lane_pins WHERE campaign_id = $1 ORDER BY 1)`,
		campaign).Scan(&lanes)
	if err != nil {
		s.t.Fatal(err)
	}
	return lanes
}

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
	return int(d.samplesOf(fmt.Sprintf(`pacer_jobs_settled_total{campaign=%q,outcome="delivered"}`, campaign)))
}

// TestStripes: the backlog of a fast campaign, from ingress and written directly, lies in several lanes; two daemons send
// it, each job once, after one hop at most; then the campaign loses its lanes. A slow campaign has one lane.
func TestStripes(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4, lanes: stripedLanes})
	// Each 256 offsets have a lane by a hash of the topic's name, which is another one in each run: that one of four lanes is
	// chosen for none of 48 such stretches is seen in one of 250,000 runs.
	const rate, published, direct = 2000, 48 * 256, 1000
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, status) VALUES ('wide', $1, 'paused'), ('narrow', 20, 'paused')`, rate)
	daemons := []*daemon{s.start("one"), s.start("two")}
	for _, d := range daemons {
		d.awaitReady(20 * time.Second)
	}
	s.publish(append(ofCampaign("wide", 0, published), ofCampaign("narrow", 0, 200)...))
	s.await(30*time.Second, "the overflow", func() bool {
		return s.written(requeue.LaneTopic(s.prefix)) >= published+200
	})
	lanes := s.stripes("wide")
	counts := s.inLanes("wide")
	for _, lane := range lanes {
		if len(lanes) != 4 || len(counts) != 4 || counts[lane] == 0 {
			t.Fatalf("the campaign has lanes %v, and jobs in %v", lanes, counts)
		}
	}
	if counts := s.inLanes("narrow"); len(counts) != 1 || len(s.stripes("narrow")) != 1 {
		t.Errorf("the slow campaign has lanes %v, and jobs in %v", s.stripes("narrow"), counts)
	}
	for _, d := range daemons {
		s.await(15*time.Second, d.name+" to show what waits in all lanes", func() bool {
			return d.samplesOf(`pacer_campaign_backlog{campaign="wide"}`) == published
		})
	}

	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(lanes), " ", ","), "[]")
	out := s.run("publish", "--campaign", "wide", "--count", fmt.Sprint(direct), "--direct")
	if !strings.Contains(out, "lanes/"+list+" in ") {
		t.Errorf("published directly, not to lanes %s: %s", list, out)
	}
	if out := s.run("campaign", "show", "wide"); !strings.Contains(out, "4: "+strings.ReplaceAll(list, ",", ", ")) {
		t.Errorf("lanes %v are not shown: %s", lanes, out)
	}
	s.shownSenders("wide", lanes, len(daemons))
	var asked []int
	if err := s.db.QueryRow(t.Context(), `SELECT pacer.lanes('wide', $1, $2)`, stripedLanes, requeue.LaneTopic(s.prefix)).Scan(&asked); err != nil || !slices.Equal(asked, lanes) {
		t.Errorf("lanes %v by SQL, %v; want %v", asked, err, lanes)
	}

	s.sql(`UPDATE pacer.campaigns SET status = 'active'`)
	s.await(60*time.Second, "every job", func() bool {
		n, _ := s.receiver.accepted("wide")
		return n == published+direct
	})
	s.withinBound("wide", rate)
	for _, d := range daemons {
		if n := d.settledBy("wide"); n < (published+direct)/10 {
			t.Errorf("%s sent %d of %d jobs", d.name, n, published+direct)
		}
	}
	s.await(60*time.Second, "the drained campaign to lose its lanes", func() bool { return len(s.stripes("wide")) == 0 })
	for _, d := range daemons {
		d.stop()
	}
	if n, again := s.receiver.accepted("wide"); n != published+direct || again != 0 {
		t.Errorf("%d of %d jobs arrived, %d twice", n, published+direct, again)
	}
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
		if err := json.Unmarshal([]byte(s.run("explain", campaign, "--json")), &v); err != nil {
			s.t.Fatal(err)
		}
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
