package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

const directLanes = 8

// intoLane writes jobs into a lane as a producer does that knows nothing of pacer's own headers.
func (s *stack) intoLane(lane int, jobs []job) {
	s.t.Helper()
	s.produce(requeue.LaneTopic(s.prefix), lane, 0, jobs...)
}

// TestDirectProduction: jobs that producers write into lanes themselves, any lane, are sent at the campaign's rate without a hop, and ones of
// ingress go behind them.
func TestDirectProduction(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, lanes: directLanes})
	const rate = 50
	s.campaign("spring", rate)
	lane := delivery.OrderOfLanes("spring", directLanes).Lane(0)
	if out := s.run("publish", "--campaign", "spring", "--count", "400", "--direct"); !strings.Contains(out, fmt.Sprintf("published 400 jobs of campaign spring to %slanes/%d", s.prefix, lane)) {
		t.Fatalf("not to lane %d: %s", lane, out)
	}
	d := s.started("one")
	s.await(15*time.Second, "its backlog to be known", func() bool { return d.backlogOf("spring") > 100 })
	s.publish(ofCampaign("spring", 0, 50)) // behind the direct ones, since the campaign has a backlog
	s.await(20*time.Second, "all", func() bool { return s.receiver.count("spring") == 450 })
	s.withinBound("spring", rate)
	list := s.receiver.arrivals("spring")
	for i, a := range list {
		if ingress := strings.HasPrefix(a.id, "spring-"); ingress && i < 390 {
			t.Errorf("%s came as number %d, before the backlog", a.id, i)
			break
		}
	}
	hops := map[string]int{}
	s.each("lanes", func(_ string, r delivery.Record) { hops[r.Header("pacer-hops")]++ })
	if hops[""]+hops["1"] > 450 || len(hops) > 2 {
		t.Errorf("records in lanes by hops: %v", hops)
	}

	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, job_ttl) VALUES ('autumn', 50, '1 hour')`)
	other := (delivery.OrderOfLanes("autumn", directLanes).Lane(0) + 3) % directLanes
	s.intoLane(other, append(ofCampaign("autumn", 0, 20), job{campaign: "autumn"}))
	s.await(10*time.Second, "jobs in another lane than those of the campaign", func() bool { return s.receiver.count("autumn") == 21 })
	byOrigin := 0
	for _, a := range s.receiver.arrivals("autumn") {
		if strings.HasPrefix(a.id, fmt.Sprintf("%slanes/%d/", s.prefix, other)) {
			byOrigin++
		}
	}
	if byOrigin != 1 {
		t.Errorf("%d of 1 job without an id were named after their record", byOrigin)
	}
	d.stop()
}

// TestDirectJobsExpire: a direct job counts from when it was written, however often its lane is read.
func TestDirectJobsExpire(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 1, lanes: directLanes})
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, job_ttl, status) VALUES ('spring', 100, '3 seconds', 'paused')`)
	d := s.started("one")
	s.intoLane(3, ofCampaign("spring", 0, 50))
	time.Sleep(4 * time.Second)
	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'spring'`)
	s.await(10*time.Second, "all to expire", func() bool {
		return d.metric(`pacer_jobs_settled_total{campaign="spring",outcome="expired"}`) == 50
	})
	if n := s.receiver.count("spring"); n != 0 {
		t.Errorf("%d were sent after their time", n)
	}
	d.stop()
}
