package test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestRefusedCampaignIsHeld: a destination that refuses all jobs of a campaign makes fifty dead letters and no more; explain
// says what holds the campaign, and resume goes on.
func TestRefusedCampaignIsHeld(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 1})
	s.campaign("c", 100)
	s.campaign("other", 50)
	s.receiver.fails(http.StatusBadRequest, func(a arrival) bool { return a.campaign == "c" })
	s.publish(mix(map[string]int{"c": 250, "other": 100}))
	d := s.started("one")
	s.await(30*time.Second, "explain says that it is refused", func() bool {
		return strings.Contains(s.run("explain", "c"), "refused many of its jobs in a row")
	})
	s.arrive(20*time.Second, "other", 100)
	if n := len(s.dead()); n != 50 {
		t.Errorf("%d dead letters, want 50", n)
	}
	if n := d.log.lines("level=ERROR", "refused many jobs of this campaign in a row"); n != 1 {
		t.Errorf("%d Error lines", n)
	}
	s.run("campaign", "resume", "c")
	s.await(20*time.Second, "fifty more dead letters", func() bool { return len(s.dead()) == 100 })
	d.stop()
}
