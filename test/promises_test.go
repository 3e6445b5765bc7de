package test

import (
	"context"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// docs/design.md names the tests of each promise. Here are the parts that no other test shows from outside.

// TestNoJobIsOpenForLong: jobs whose turn is minutes away are committed in ingress after five seconds, and wait in memory if pacing.max_open_age says so.
func TestNoJobIsOpenForLong(t *testing.T) {
	t.Parallel()
	const partitions, jobs, openFor = 4, 400, 5 * time.Second
	patient := newStack(t, stackOptions{settings: "pacing: {max_open_age: 1m}"})
	patient.campaign("slow", 1)
	d := patient.started("patient")
	patient.publish(ofCampaign("slow", 0, 40))
	patient.await(20*time.Second, "the first job", func() bool { return patient.receiver.count("slow") > 0 })
	s := newStack(t, stackOptions{partitions: partitions})
	s.campaign("slow", 1)
	s.startTwo()
	s.publish(mix(map[string]int{"slow": jobs}))
	published := time.Now()
	s.await(30*time.Second, "the commit of the last job", func() bool {
		committed := int64(0)
		for _, p := range s.commits(context.Background(), map[string][]int{s.ingress: {0, 1, 2, 3}})[s.ingress] {
			committed += p.CommittedOffset
		}
		return committed == jobs
	})
	if took := time.Since(published); took > openFor+10*time.Second { // a busy machine relays and commits late
		t.Errorf("the last job was open for %s", took)
	}
	if n := s.receiver.count("slow"); n > 20 {
		t.Errorf("%d jobs at 1/s were sent meanwhile", n)
	}
	s.withinBound("slow", 1)
	if n := d.metric(`pacer_jobs_settled_total{campaign="slow",outcome="requeued"}`); n > 0 {
		t.Errorf("%v jobs left for a lane, though they may be open for a minute", n)
	}
}

// TestOneTopicDoesNotSlowAnother: a backlog of minutes in one ingress topic, and a campaign at its rate in another one.
func TestOneTopicDoesNotSlowAnother(t *testing.T) {
	t.Parallel()
	const rate, jobs = 50, 600
	s := newStack(t, stackOptions{partitions: 4})
	other := *s
	other.ingress = testservices.Topic(t, s.brokers, "e2e-other", 4)
	s.campaign("slow", 1)
	s.campaign("steady", rate)
	s.publish(mix(map[string]int{"slow": 20_000}))
	other.publish(mix(map[string]int{"steady": jobs}))
	s.started("one", "PACER_KAFKA_TOPICS="+s.ingress+","+other.ingress)
	s.await(time.Minute, "the jobs of the other topic", func() bool { return s.receiver.count("steady") >= jobs })
	list := s.receiver.arrivals("steady")
	took := float64(list[jobs-1].at-list[0].at) / 1e6
	if share := (jobs - 1) / (rate * took); share < 0.5 { // a machine of many tests is busy; make chaos asks for 0.99
		t.Errorf("%.1f %% of the rate", 100*share)
	}
	s.withinBound("steady", rate)
}
