package test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// TestWhereAJobIs: a job is found in ingress, in a lane, in a timer, among the dead letters and among the events, by its id.
func TestWhereAJobIs(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2})
	s.withResults()
	s.campaign("sent", 1000)
	s.campaign("held", 1000)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'held'`)
	s.receiver.fails(http.StatusGone, func(a arrival) bool { return a.id == "gone" })
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	published := []job{
		{campaign: "sent", id: "arrived"}, {campaign: "sent", id: "gone"},
		{campaign: "sent", id: "later", headers: []kafka.Header{header("pacer-not-before", tomorrow)}},
	}
	s.publish(append(published, ofCampaign("held", 0, 500)...))
	find := func(id string) string {
		out, _ := s.try("job", "find", id) // it fails where nothing is known
		return out
	}
	s.await(20*time.Second, "a job in ingress", func() bool { return strings.Contains(find("later"), s.ingress+"/") })
	s.started("one")
	for id, says := range map[string][]string{
		"arrived":  {"delivered", "campaign sent, 1 attempt", "status 200"},
		"gone":     {"dead letter", "refused", "status 410"},
		"later":    {"waits, or is being sent", s.prefix + "timer.", "not_before", "not before " + tomorrow},
		"held-499": {"waits, or is being sent", s.prefix + "lanes/", "campaign held, 0 attempts"},
	} {
		s.await(20*time.Second, id, func() bool {
			out := find(id)
			for _, part := range says {
				if !strings.Contains(out, part) {
					return false
				}
			}
			return !strings.Contains(out, "not looked at")
		})
	}
	if out, err := s.try("job", "find", "nobody"); err == nil || !strings.Contains(out, "job nobody: nothing is known of it") {
		t.Errorf("%v %s", err, out)
	}
	var gone struct{ Dead, Results []struct{ Reason string } }
	if s.unmarshal(s.run("job", "find", "gone", "--json"), &gone); len(gone.Dead) != 1 || len(gone.Results) != 1 || gone.Results[0].Reason != "refused" {
		t.Errorf("%+v", gone)
	}
}

// TestAJobIsCancelled: jobs that wait, in a lane or a timer, settle as cancelled at their turn. One that was delivered, or that does not
// wait, is said to be so. Without a ledger, none is cancelled.
func TestAJobIsCancelled(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2, settings: deduped})
	s.withResults()
	s.campaign("held", 1000)
	soon := time.Now().Add(15 * time.Second).UTC().Format(time.RFC3339)
	s.publish([]job{{campaign: "held", id: "arrived"}, {campaign: "held", id: "later", headers: []kafka.Header{header("pacer-not-before", soon)}}})
	d := s.started("one")
	s.await(20*time.Second, "a delivery", func() bool { return s.receiver.count("held") == 1 })
	s.run("campaign", "pause", "held")
	var revision float64
	noError(t, s.db.QueryRow(t.Context(), `SELECT revision FROM pacer.campaigns WHERE id = 'held'`).Scan(&revision))
	s.await(20*time.Second, "the daemon knows of the pause", func() bool { return d.metric("pacer_config_revision") >= revision })
	event := []kafka.Header{header("ce_id", "event-1"), header("ce_source", "/shop")}
	s.publish(append(ofCampaign("held", 0, 500), job{campaign: "held", payload: []byte("{}"), headers: event}))
	s.await(20*time.Second, "jobs in a lane", func() bool {
		out, _ := s.try("job", "find", "held-499")
		return strings.Contains(out, s.prefix+"lanes/")
	})
	out, err := s.try("job", "cancel", "held-1", "held-499", "later", "event-1", "nobody", "arrived", "--reason", "ticket 4711")
	if exitCode(err) != 1 || strings.Count(out, "cancelled") != 5 || strings.Count(out, "not found waiting: it is settled") != 2 || !strings.Contains(out, "2 of 6 jobs are not cancelled") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := s.try("job", "cancel", "held-2", "arrived", "--campaign", "held"); exitCode(err) != 1 || !strings.Contains(out, "was delivered") || strings.Count(out, "held  cancelled") != 1 {
		t.Errorf("%v %s", err, out)
	}
	if out := s.run("job", "find", "held-499"); !strings.Contains(out, "waits, or is being sent") || !strings.Contains(out, "overflow, cancelled") {
		t.Errorf("find says\n%s", out)
	}
	var changes int
	if err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM pacer.campaign_changes WHERE operation = 'cancel' AND campaign_id = 'held'
AND (new->'ids' = '["event-1", "held-1", "held-499", "later"]' AND reason = 'ticket 4711' OR new->'ids' = '["held-2"]')`).Scan(&changes); err != nil || changes != 2 {
		t.Errorf("%d changes are recorded, %v", changes, err)
	}
	s.run("campaign", "resume", "held")
	cancelled := []string{"event-1", "held-1", "held-2", "held-499", "later"}
	s.await(time.Minute, "an event of each job", func() bool { return len(s.events()) == 503 })
	events := s.events()
	for _, id := range cancelled {
		if list := events[id]; len(list) != 1 || list[0].Outcome != "cancelled" || list[0].Attempts != 0 {
			t.Errorf("%s: %+v", id, list)
		}
	}
	s.allOnce("held", 503-len(cancelled))
	off := newStack(t, stackOptions{partitions: 1})
	if out, err := off.try("job", "cancel", "u-1"); exitCode(err) != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, "set dedupe.ttl and restart the daemons, or cancel the campaign") {
		t.Errorf("%v %s", err, out)
	}
}
