package test

import (
	"slices"
	"strings"
	"testing"
)

// TestTheCampaignOfComposeIsMade has a real database do what the service demo-campaign does, twice, since each `docker compose up` does
// it again.
func TestTheCampaignOfComposeIsMade(t *testing.T) {
	t.Parallel()
	command := composeProject(t).Services["demo-campaign"].Command
	at := slices.Index(command, "--command")
	if at < 0 || at+2 != len(command) {
		t.Fatalf("the command is %q", command)
	}
	s := newStack(t, stackOptions{})
	for range 2 {
		if _, err := s.db.Exec(t.Context(), command[at+1]); err != nil {
			t.Fatal(err)
		}
	}
	publisher := composeProject(t).Services["publisher"].Command
	campaign := publisher[slices.Index(publisher, "--campaign")+1]
	if shown := s.run("campaign", "show", campaign); !strings.Contains(shown, "50/s") {
		t.Errorf("campaign %s is\n%s", campaign, shown)
	}
	if shown := s.run("quota", "show", "demo"); !strings.Contains(shown, "1500/1m,80000/1h") || !strings.Contains(shown, campaign) {
		t.Errorf("its quota is\n%s", shown)
	}
}
