package test

import (
	"net/http"
	"testing"
	"time"
)

// Waiting is no standstill: paused and very slow campaigns, one that stays in ingress, empty partitions and an empty
// group do not make a daemon unhealthy.
func TestWaitingIsNoStandstill(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 3, settings: "watchdog: 15s\npacing: {max_open_age: 500ms}"})
	s.campaign("paused", 100)
	s.campaign("hourly", 1)
	s.campaign("keeps", 1)
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'paused'`)
	s.sql(`UPDATE pacer.campaigns SET send_per = '1 hour' WHERE id <> 'paused'`)
	s.sql(`UPDATE pacer.campaigns SET overflow = 'block' WHERE id = 'keeps'`)
	d := s.started("daemon")
	s.publish(mix(map[string]int{"paused": 300, "hourly": 300}))
	s.await(20*time.Second, "a job of the hour", func() bool { return s.receiver.count("hourly") > 0 })
	s.publish(mix(map[string]int{"keeps": 200}))
	s.await(20*time.Second, "a job that was kept", func() bool { return s.receiver.count("keeps") > 0 })
	// Longer than max_open_age, the sink's timeout and the watchdog together.
	for end := time.Now().Add(21 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if d.get("/healthz") != http.StatusOK || d.metric("pacer_partition_stalled") != 0 {
			t.Fatal("the daemon calls waiting a standstill")
		}
	}
	t.Log(s.run("top", "--server", "http://"+d.listen))
	d.stop()
}
