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
	s.receiver.answer = func(a arrival) (int, time.Duration) {
		if a.id == "gone" {
			return http.StatusGone, 0
		}
		return http.StatusOK, 0
	}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	published := []job{
		{campaign: "sent", id: "arrived"}, {campaign: "sent", id: "gone"},
		{campaign: "sent", id: "later", headers: []kafka.Header{{Key: "pacer-not-before", Value: []byte(tomorrow)}}},
	}
	s.publish(append(published, ofCampaign("held", 0, 500)...))
	find := func(id string) string {
		out, _ := s.try("job", "find", id) // it fails where nothing is known
		return out
	}
	s.await(20*time.Second, "a job in ingress", func() bool { return strings.Contains(find("later"), s.ingress+"/") })
	d := s.start("one")
	d.awaitReady(20 * time.Second)
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
