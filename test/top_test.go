package test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// `pacer top` shows what a running daemon does, in its own process and over the daemon's API.
func TestTopOfARunningDaemon(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{})
	if out := s.run("top", "--once"); !strings.Contains(out, "daemons ready 0 of 0") {
		t.Errorf("without a daemon: %q", out)
	}
	s.campaign("quick", 200)
	s.campaign("slow", 2)
	d := s.started("daemon")
	s.run("quota", "set", "provider", "--window", "100000/1h")
	s.run("campaign", "set", "quick", "--quota", "provider")
	s.publish(mix(map[string]int{"quick": 3000, "slow": 20}))
	s.await(20*time.Second, "both campaigns to be sent", func() bool { return s.receiver.count("quick") > 100 && s.receiver.count("slow") > 0 })
	var frame struct {
		Ready     bool
		Campaigns []struct {
			Campaign string
			SendRate float64 `json:"send_rate"`
			Sent     float64 `json:"sent_per_second"`
		}
		More   int
		Quotas []struct {
			Quota, Window    string
			Remaining, Limit float64
		}
		Sinks []struct{ Sink string }
	}
	s.await(14*time.Second, "top to show the rate", func() bool { // daemons exchange their figures every second or two
		out := s.run("top", "--json", "--interval", "2s", "--limit", "1")
		if err := json.Unmarshal([]byte(out), &frame); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return len(frame.Campaigns) == 1 && frame.Campaigns[0].Sent >= 100
	})
	if !frame.Ready || len(frame.Campaigns) != 1 || frame.More != 1 || len(frame.Quotas) != 1 || len(frame.Sinks) != 1 {
		t.Fatalf("%+v", frame)
	}
	if c := frame.Campaigns[0]; c.Campaign != "quick" || c.SendRate != 200 || c.Sent < 100 || c.Sent > 300 {
		t.Errorf("%+v", c)
	}
	if q := frame.Quotas[0]; q.Quota != "provider" || q.Window != "1h" || q.Limit != 100_000 || q.Remaining >= q.Limit || q.Remaining <= 0 {
		t.Errorf("%+v", q)
	}
	text := s.run("top", "--server", "http://"+d.listen, "--sort", "name", "--campaign", "slow")
	if !strings.Contains(text, "pacer top  "+d.listen+"  ready") || !strings.Contains(text, "daemons ready 1 of 1") || !strings.Contains(text, "\nslow ") || strings.Contains(text, "\nquick ") {
		t.Error(text)
	}
	d.kill()
	out, err := s.try("top", "--server", "http://"+d.listen)
	if exitCode(err) != 1 || !strings.Contains(out, "--server "+d.listen+": no answer") {
		t.Errorf("after the daemon: %v, %q", err, out)
	}
}
