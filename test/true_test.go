package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// TestFiguresAreTrue: the backlog and what was delivered are the same wherever they are shown, and what the log and the receiver say: while a
// destination answers 429 with a Retry-After, which moves its jobs to timers, while daemons send, and after kill -9. At the end the campaign is
// done to the last job. What is replayed is not dead any more. A destination that does not work for a while is such a case too. The sums under the
// curve of a campaign are its counts.
func TestFiguresAreTrue(t *testing.T) {
	t.Parallel()
	const storm, calm, refused, shaky = 3000, 600, 20, 400
	shop := newReceiver(t)
	s := newStack(t, stackOptions{partitions: 4, sinks: fmt.Sprintf(
		"  hooks: {type: http, destinations: true, guard: {ports: [%s], allow: [127.0.0.0/8], allow_http: true}}", portOf(t, shop))})
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('storm', 250, 'hooks')`)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('shaky', 50, 'hooks')`)
	s.sql(`INSERT INTO pacer.destinations (id, url) VALUES ('shop', $1), ('mill', $1 || '/mill')`, shop.url)
	s.campaign("calm", 40)
	s.sql(`UPDATE pacer.campaigns SET expected_total = CASE id WHEN 'storm' THEN $1::bigint WHEN 'shaky' THEN $2 ELSE $3 END`, storm, shaky, calm+refused)
	var throttles, refuses atomic.Bool
	refuses.Store(true)
	shop.answer = func(a arrival) (int, time.Duration) {
		switch {
		case throttles.Load() && a.campaign == "shaky":
			return http.StatusServiceUnavailable, 0
		case throttles.Load():
			return http.StatusTooManyRequests, 2 * time.Second
		}
		return http.StatusOK, 0
	}
	s.receiver.fails(http.StatusGone, func(a arrival) bool { return strings.HasPrefix(a.id, "refused") && refuses.Load() })
	one, two := s.startTwo()
	jobs := mix(map[string]int{"storm": storm, "calm": calm, "shaky": shaky})
	for i := range jobs {
		if to := map[string]string{"storm": "shop", "shaky": "mill"}[jobs[i].campaign]; to != "" {
			jobs[i].headers = []kafka.Header{header("pacer-destination", to)}
		}
	}
	s.publish(slices.Concat(further("calm", "refused", refused), jobs))
	o := s.watch([]string{"storm", "calm", "shaky"}, []*receiver{shop}, one, two)
	time.Sleep(2 * time.Second)
	throttles.Store(true)
	most := 0.0
	s.await(time.Minute, "jobs in timers", func() bool {
		most = max(most, o.inTimers("storm"))
		return most > 100
	})
	time.Sleep(2 * time.Second)
	throttles.Store(false)
	o.changed()
	// A job that has just died when its daemon is killed would be sent again, and be both dead and delivered.
	s.await(30*time.Second, "the dead letters", func() bool { return len(s.dead()) == refused })
	refuses.Store(false)
	s.run("dead", "replay", "--campaign", "calm")
	two.kill()
	o.excuse(one)
	s.await(time.Minute, "all jobs", func() bool {
		a, _ := shop.accepted("storm")
		b, _ := s.receiver.accepted("calm")
		c, _ := shop.accepted("shaky")
		return a+b+c == storm+calm+refused+shaky
	})
	o.changed()
	last := ""
	defer func() { t.Log(last) }()
	s.await(time.Minute, "all figures to be right", func() bool {
		if wrong := o.right(); len(wrong) > 0 {
			last = strings.Join(wrong, "\n")
			return false
		}
		for id, n := range map[string]int64{"storm": storm, "calm": calm + refused, "shaky": shaky} {
			var p struct {
				Backlog  int64
				Progress struct {
					Delivered, Dead int64
					Percent         float64
				}
			}
			s.unmarshal(s.run("campaign", "show", id, "--json"), &p)
			last = fmt.Sprintf("%s: %+v", id, p)
			if p.Backlog != 0 || p.Progress.Percent != 100 || p.Progress.Dead != 0 || p.Progress.Delivered < n {
				return false
			}
			if under := one.underCurve(id); max(under-p.Progress.Delivered, p.Progress.Delivered-under) > p.Progress.Delivered/100 {
				last += fmt.Sprintf(", and %d under its curve", under)
				return false
			}
		}
		return true
	})
	o.end()
	t.Logf("%.0f jobs were in timers", most)
	one.stop()
}
