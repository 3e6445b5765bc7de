package test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/requeue"
)

// TestWhatWasDeliveredIsRemoved: jobs go through lanes and a timer of two daemons. Delivered jobs are soon deleted from the topics,
// waiting jobs are not. Restarts work, also without the group's offsets.
func TestWhatWasDeliveredIsRemoved(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, lanes: 4})
	s.campaign("sent", 500)
	s.campaign("waits", 500)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'waits'`)
	one, two := s.startTwo()
	sent, waits := ofCampaign("sent", 0, 4000), ofCampaign("waits", 0, 600)
	later := atTime("pacer-not-before", time.Now().Add(15*time.Second))
	for i := range 200 {
		sent[i].headers = append(sent[i].headers, later)
	}
	s.publish(sent)
	s.await(40*time.Second, "every job but those that wait", func() bool { return s.receiver.count("sent") >= len(sent) })
	s.publish(waits) // behind all others in their lanes, which are removed up to the first one
	lanes, timer := requeue.LaneTopic(s.prefix), requeue.TimerTopic(s.prefix, 5*time.Second)
	s.await(2*time.Minute, "what was delivered to be gone", func() bool {
		begins, ends := s.kept(is(lanes))
		timerBegins, timerEnds := s.kept(is(timer))
		return timerEnds > 0 && timerBegins == timerEnds && ends-begins == int64(len(waits))
	})
	begins, ends := s.kept(is(lanes))
	if ends-begins < int64(len(waits)) {
		t.Errorf("%d records are left in lanes, where %d jobs wait", ends-begins, len(waits))
	}
	deleted := one.metric("pacer_janitor_deleted_records_total") + two.metric("pacer_janitor_deleted_records_total")
	if timerBegins, _ := s.kept(is(timer)); deleted < float64(begins+timerBegins) {
		t.Errorf("%v records were counted, %d are gone from lanes alone", deleted, begins)
	}
	one.stop()
	two.stop()

	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'waits'`)
	three := s.started("three")
	s.await(20*time.Second, "those that waited", func() bool { return s.receiver.count("waits") >= len(waits) })
	three.stop() // removes what is left
	if begins, ends := s.kept(is(lanes)); begins != ends {
		t.Errorf("%d records are left after the end", ends-begins)
	}
	s.allOnce("", len(sent)+len(waits))
	// Another group has no offsets: lanes and timers go on from the positions in PostgreSQL, ingress begins anew, as that of a
	// group that has never read it.
	s.sql(`UPDATE pacer.positions SET group_id = 'another' WHERE topic <> $1`, s.ingress)
	s.sql(`UPDATE pacer.store SET group_id = 'another'`)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused'`)
	four := s.started("four", "PACER_KAFKA_GROUP=another")
	s.await(20*time.Second, "ingress read anew", func() bool { return four.metric(`pacer_records_read_total{place="ingress"}`) > 0 })
	for _, d := range []*daemon{one, two, three, four} {
		if n := d.log.lines("level=ERROR") + d.log.lines("level=WARN", "delete"); n != 0 {
			t.Errorf("%s: %d errors and warnings", d.name, n)
		}
	}
	if n := four.metric("pacer_offset_resets_total"); n != 0 {
		t.Errorf("%v offsets were reset", n)
	}
}

// is tells a topic by its name.
func is(topic string) func(string) bool { return func(name string) bool { return name == topic } }
