//go:build e2e

package test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestFigureFCM: one daemon sends messages at the most that the service takes from a project, 600,000 a minute, to a stand-in that
// answers in 150 ms, on the same machine. Its processor time shows how much it could send without others.
func TestFigureFCM(t *testing.T) {
	const perSecond, seconds, answer = 10_000, 15, 150 * time.Millisecond
	sent := median(t, "fcm at 10,000/s, answers in 150 ms: jobs sent of jobs allowed", "%", func(t *testing.T) float64 {
		f := sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, _ int) bool {
			time.Sleep(answer)
			return false
		})
		s := newStack(t, stackOptions{partitions: 6, sinks: fmt.Sprintf(
			"  android: {type: fcm, url: %q, ca_file: %q, service_account_file: %q, max_in_flight: 4000}", f.URL, f.CAFile, f.KeyFile)})
		s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('push', $1, 'android')`, perSecond)
		d := s.started("one")
		jobs := make([]job, perSecond*(seconds+5))
		for i := range jobs {
			id := fmt.Sprintf("push-%d", i)
			jobs[i] = job{campaign: "push", id: id, payload: []byte(`{"token":"` + id + `","notification":{"title":"Hello","body":"from ` + id + `"}}`)}
		}
		s.publish(jobs)
		s.await(time.Minute, "the first messages", func() bool { return f.Count() > 3*perSecond })
		began, n, before, own := time.Now(), f.Count(), d.spent(), ownCPU(t)
		for time.Since(began) < seconds*time.Second && f.Count() < len(jobs)*19/20 {
			time.Sleep(20 * time.Millisecond)
		}
		took, sent := time.Since(began).Seconds(), float64(f.Count()-n)
		daemon, other := d.spent().since(before).over(sent), (ownCPU(t)-own).Seconds()*1e6/sent
		s.await(2*time.Minute, "the rest of the messages", func() bool { return f.Count() >= len(jobs) })
		d.stop()
		micros := float64(daemon.cpu.Nanoseconds()) / 1e3
		t.Logf("FIGURE  fcm: %.0f/s over %.1f s; a message costs the daemon %.1f µs of a processor (%.0f/s on two of its own) and %.1f allocations, "+
			"the stand-in %.1f µs; %d connections, %d tokens", sent/took, took, micros, 2e6/micros, daemon.mallocs, other, f.Connections(), f.Tokens())
		if f.Tokens() != 1 {
			t.Errorf("%d tokens were fetched", f.Tokens())
		}
		if n := f.Count(); n != len(jobs) {
			t.Errorf("%d messages for %d jobs", n, len(jobs))
		}
		return 100 * sent / took / perSecond
	})
	if sent > 102 {
		t.Errorf("%.1f %% of the rate", sent)
	}
}

// ownCPU is the user and system time of this process.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	noError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
