package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

const deduped = "dedupe: {ttl: 1h}"

// TestOneIDOneDelivery: two records with one id are one job with a ledger, and two without; in two campaigns they are two.
func TestOneIDOneDelivery(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, settings string
		perID          int
	}{{"with", deduped, 1}, {"without", "", 2}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, stackOptions{partitions: 4, settings: tc.settings})
			s.campaign("a", 500)
			s.campaign("b", 500)
			const ids = 200
			var jobs []job
			for i := range 2 * ids {
				id := fmt.Sprint("same-", i%ids)
				jobs = append(jobs, job{campaign: "a", id: id}, job{campaign: "b", id: id})
			}
			one, two := s.startTwo()
			s.publish(jobs)
			want := 2 * ids * tc.perID
			s.await(20*time.Second, "every job", func() bool { return s.receiver.count("") >= want })
			time.Sleep(time.Second) // for what would be too many
			if n := s.receiver.count(""); n != want {
				t.Errorf("%d requests for %d ids in two campaigns, want %d", n, ids, want)
			}
			one.stop()
			two.stop()
		})
	}
}

// TestRepublishedBacklog: a whole campaign is published again. Delivered jobs settle as fast as they are read, not at the campaign's
// rate. A new job behind them goes at once.
func TestRepublishedBacklog(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4, settings: deduped})
	s.campaign("c", 1000)
	jobs := mix(map[string]int{"c": 3000})
	s.publish(jobs)
	d := s.started("one")
	s.await(20*time.Second, "every job", func() bool { return s.receiver.count("") >= len(jobs) })
	s.sql(`UPDATE pacer.campaigns SET send_rate = 10 WHERE id = 'c'`)
	time.Sleep(time.Second)
	s.publish(append(jobs, job{campaign: "c", id: "new"}))
	s.await(20*time.Second, "the new job", func() bool { return s.receiver.count("") > len(jobs) })
	s.allOnce("", len(jobs)+1)
	d.stop()
}

// TestKilledDaemonSendsAgain: kill -9 in the midst of sending. Without a ledger, what was in flight and what was settled
// since the last commit is sent again; with it, only what the receiver had accepted and Redis not yet marked.
func TestKilledDaemonSendsAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, settings string
	}{{"without", ""}, {"with", deduped}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, stackOptions{partitions: 6, settings: tc.settings})
			s.campaign("c", 1000)
			const n = 3000
			s.publish(ofCampaign("c", 0, n))
			d := s.started("one")
			kills := 0
			for _, at := range []int{700, 1700} {
				s.await(60*time.Second, "some jobs", func() bool { return s.receiver.count("") > at })
				d.kill()
				s.bury()
				kills++
				d.launch()
			}
			s.arrive(90*time.Second, "", n)
			d.stop()
			distinct, duplicates := s.receiver.accepted("")
			t.Logf("%s a ledger: %d jobs, %d kills, %d duplicates", tc.name, distinct, kills, duplicates)
			s.withinBound("c", 1000)
			// A request to this receiver takes about a millisecond, and so does a mark.
			const inFlight = 20
			switch {
			case tc.settings != "" && duplicates > kills*inFlight:
				t.Errorf("%d duplicates after %d kills, more than can have been in flight", duplicates, kills)
			case tc.settings == "" && duplicates == 0:
				t.Error("no duplicates without a ledger: the test shows nothing")
			}
		})
	}
}

// TestFrozenRedisWithALedger: Redis stops answering for some seconds in the midst of sending, with requests on their way.
func TestFrozenRedisWithALedger(t *testing.T) {
	t.Parallel()
	redis := testservices.FreshRedis(t)
	s := newStack(t, stackOptions{partitions: 6, redis: redis.Addr, settings: deduped})
	s.receiver.answersAfter("", 20*time.Millisecond)
	s.campaign("c", 500)
	jobs := mix(map[string]int{"c": 2500})
	s.publish(jobs)
	one, two := s.startTwo()
	s.await(20*time.Second, "some jobs", func() bool { return s.receiver.count("") > 800 })
	redis.Freeze()
	time.Sleep(4 * time.Second)
	redis.Thaw()
	s.arrive(60*time.Second, "", len(jobs))
	one.stop()
	two.stop()
	s.allOnce("", len(jobs))
	s.withinBound("c", 500)
	for _, d := range []*daemon{one, two} {
		if lines := d.log.lines("level=WARN", "dedupe ledger"); lines > 1 {
			t.Errorf("%s: %d Warn lines of the ledger", d.name, lines)
		}
	}
}

// TestRollingRestartWithALedger: daemons come and go, one after the other; every partition moves several times.
func TestRollingRestartWithALedger(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 6, settings: deduped})
	s.campaign("c", 500)
	s.campaign("d", 50)
	jobs := mix(map[string]int{"c": 5000, "d": 400})
	s.publish(jobs)
	one, two := s.startTwo()
	for i, d := range []*daemon{one, two, one, two} {
		s.await(20*time.Second, "some jobs", func() bool { return s.receiver.count("") > 500+1000*i })
		d.stop()
		d.launch()
	}
	s.arrive(60*time.Second, "", len(jobs))
	one.stop()
	two.stop()
	s.allOnce("", len(jobs))
	s.withinBound("c", 500)
	s.withinBound("d", 50)
}
