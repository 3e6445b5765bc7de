package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

const directLanes = 8

// intoLane writes jobs into a lane as a producer does that knows nothing of pacer's own headers; one without an id has no
// header for it.
func (s *stack) intoLane(lane int, jobs []job) {
	s.t.Helper()
	records := make([]kafka.Record, len(jobs))
	for i, j := range jobs {
		payload := j.payload
		if payload == nil {
			payload = []byte("{}")
		}
		records[i] = kafka.Record{Value: kafka.NewBytes(payload), Headers: append([]kafka.Header{
			{Key: "pacer-campaign", Value: []byte(j.campaign)},
		}, j.headers...)}
		if j.id != "" {
			records[i].Headers = append(records[i].Headers, kafka.Header{Key: "pacer-job-id", Value: []byte(j.id)})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := s.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: requeue.LaneTopic(s.prefix), Partition: lane, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		s.t.Fatalf("write into lane %d: %v", lane, err)
	}
}

// pin is the lane a campaign is pinned to, -1 for none.
func (s *stack) pin(campaign string) (lane int) {
	s.t.Helper()
	err := s.db.QueryRow(context.Background(),
		`SELECT coalesce((SELECT lane FROM pacer.lane_pins WHERE campaign_id = $1), -1)`, campaign).Scan(&lane)
	if err != nil {
		s.t.Fatal(err)
	}
	return lane
}

// TestDirectProduction: jobs that producers write into lanes themselves are sent at the campaign's rate without a hop,
// ones of ingress go behind them, and a producer that uses an old pin strands nothing and moves no campaign's pin.
func TestDirectProduction(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, lanes: directLanes})
	const rate = 200
	s.campaign("spring", rate)
	out := s.run("publish", "--campaign", "spring", "--count", "600", "--direct")
	lane := s.pin("spring")
	if lane < 0 || !strings.Contains(out, fmt.Sprintf("published 600 jobs of campaign spring to %slanes/%d", s.prefix, lane)) {
		t.Fatalf("pinned to %d: %s", lane, out)
	}
	var asked int
	if err := s.db.QueryRow(t.Context(), `SELECT pacer.lane('spring', $1, $2)`, directLanes, requeue.LaneTopic(s.prefix)).Scan(&asked); err != nil || asked != lane {
		t.Fatalf("lane %d by SQL, %v; want %d", asked, err, lane)
	}
	d := s.start("one")
	d.awaitReady(15 * time.Second)
	s.await(15*time.Second, "the first", func() bool { return s.receiver.count("spring") > 10 })
	s.publish(ofCampaign("spring", 0, 100)) // behind the direct ones, since the campaign is pinned
	s.await(20*time.Second, "all", func() bool { return s.receiver.count("spring") == 700 })
	s.withinBound("spring", rate)
	list := s.receiver.arrivals("spring")
	for i, a := range list {
		if ingress := strings.HasPrefix(a.id, "spring-"); ingress && i < 590 {
			t.Errorf("%s came as number %d, before the backlog", a.id, i)
			break
		}
	}
	hops := map[string]int{}
	s.each("lanes", func(_ string, r delivery.Record) { hops[r.Header("pacer-hops")]++ })
	if hops[""]+hops["1"] > 700 || len(hops) > 2 {
		t.Errorf("records in lanes by hops: %v", hops)
	}

	s.await(30*time.Second, "the drained campaign to be unpinned", func() bool { return s.pin("spring") < 0 })
	old := lane
	other := (old + 3) % directLanes
	s.sql(`INSERT INTO pacer.lane_pins (campaign_id, lane) VALUES ('spring', $1)`, other)
	s.sql(`UPDATE pacer.campaigns SET send_rate = 5 WHERE id = 'spring'`)
	s.intoLane(old, ofCampaign("spring", 1000, 5)) // by a producer with the old pin
	s.await(10*time.Second, "what a producer with an old pin wrote", func() bool { return s.receiver.has("spring-1004") })
	drained := time.Now().Add(13 * time.Second) // ten seconds later it is told that the old lane is drained
	var backlog []job
	for range 300 {
		backlog = append(backlog, job{campaign: "spring"})
	}
	s.intoLane(other, backlog)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, job_ttl) VALUES ('autumn', 50, '1 hour')`)
	s.intoLane(old, append(ofCampaign("autumn", 0, 20), job{campaign: "autumn"}))
	s.await(10*time.Second, "jobs in a lane nobody is pinned to", func() bool { return s.receiver.count("autumn") == 21 })
	byOrigin := 0
	for _, a := range s.receiver.arrivals("autumn") {
		if strings.HasPrefix(a.id, fmt.Sprintf("%slanes/%d/", s.prefix, old)) {
			byOrigin++
		}
	}
	if byOrigin != 1 {
		t.Errorf("%d of 1 job without an id were named after their record", byOrigin)
	}
	time.Sleep(time.Until(drained))
	if got := s.pin("spring"); got != other {
		t.Errorf("pinned to %d, want %d: its backlog is there", got, other)
	}
	d.stop()
}

// has reports whether a job has arrived.
func (r *receiver) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tallyOf("").accepted[id]
}

// TestDirectJobsExpire: a direct job counts from when it was written, however often its lane is read.
func TestDirectJobsExpire(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 1, lanes: directLanes})
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, job_ttl, status) VALUES ('spring', 100, '3 seconds', 'paused')`)
	d := s.start("one")
	d.awaitReady(15 * time.Second)
	s.intoLane(3, ofCampaign("spring", 0, 50))
	time.Sleep(4 * time.Second)
	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'spring'`)
	s.await(10*time.Second, "all to expire", func() bool {
		return d.samplesOf(`pacer_jobs_settled_total{campaign="spring",outcome="expired"}`) == 50
	})
	if n := s.receiver.count("spring"); n != 0 {
		t.Errorf("%d were sent after their time", n)
	}
	d.stop()
}
