package test

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
)

// samplesOf is the value of one series, 0 when there is none, and when the daemon does not answer.
func (d *daemon) samplesOf(series string) float64 {
	r, err := http.Get("http://" + d.listen + "/metrics")
	if err != nil {
		return 0
	}
	defer func() { _ = r.Body.Close() }()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			value, _ := strconv.ParseFloat(rest, 64)
			return value
		}
	}
	return 0
}

// TestWhatWasDeliveredIsRemoved: jobs go through lanes and a timer of two daemons. Delivered jobs are soon deleted from the topics,
// waiting jobs are not. Restarts work, also without the group's offsets.
func TestWhatWasDeliveredIsRemoved(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, lanes: 4})
	s.campaign("sent", 500)
	s.campaign("waits", 500)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'waits'`)
	one, two := s.start("one"), s.start("two")
	one.awaitReady(20 * time.Second)
	two.awaitReady(20 * time.Second)
	sent, waits := ofCampaign("sent", 0, 4000), ofCampaign("waits", 0, 600)
	later := kafka.Header{
		Key: "pacer-not-before", Value: []byte(time.Now().Add(15 * time.Second).UTC().Format(time.RFC3339)),
	}
	for i := range 200 {
		sent[i].headers = append(sent[i].headers, later)
	}
	s.publish(sent)
	s.await(40*time.Second, "every job but those that wait", func() bool { return s.receiver.count("sent") >= len(sent) })
	s.publish(waits) // behind all others in their lanes, which are removed up to the first one
	lanes, timer := requeue.LaneTopic(s.prefix), requeue.TimerTopic(s.prefix, 5*time.Second)
	s.await(2*time.Minute, "what was delivered to be gone", func() bool {
		begins, ends := s.kept(lanes)
		timerBegins, timerEnds := s.kept(timer)
		return timerEnds > 0 && timerBegins == timerEnds && ends-begins == int64(len(waits))
	})
	begins, ends := s.kept(lanes)
	if ends-begins < int64(len(waits)) {
		t.Errorf("%d records are left in lanes, where %d jobs wait", ends-begins, len(waits))
	}
	deleted := one.metric("pacer_janitor_deleted_records_total") + two.metric("pacer_janitor_deleted_records_total")
	if timerBegins, _ := s.kept(timer); deleted < float64(begins+timerBegins) {
		t.Errorf("%v records were counted, %d are gone from lanes alone", deleted, begins)
	}
	one.stop()
	two.stop()

	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'waits'`)
	three := s.start("three")
	three.awaitReady(15 * time.Second)
	s.await(20*time.Second, "those that waited", func() bool { return s.receiver.count("waits") >= len(waits) })
	if code := three.stop(); code != 0 { // removes what is left
		t.Errorf("exit code %d", code)
	}
	if begins, ends := s.kept(lanes); begins != ends {
		t.Errorf("%d records are left after the end", ends-begins)
	}
	if n, duplicates := s.receiver.accepted(""); n != len(sent)+len(waits) || duplicates != 0 {
		t.Errorf("%d distinct of %d, %d duplicates", n, len(sent)+len(waits), duplicates)
	}
	// Another group has no offsets: lanes and timers go on from the positions in PostgreSQL, ingress begins anew, as that of a
	// group that has never read it.
	s.sql(`UPDATE pacer.positions SET group_id = 'another' WHERE topic <> $1`, s.ingress)
	s.sql(`UPDATE pacer.store SET group_id = 'another'`)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused'`)
	four := s.start("four", "PACER_KAFKA_GROUP=another")
	four.awaitReady(15 * time.Second)
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
