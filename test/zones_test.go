package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// TestRecipientsHours: the hours of a campaign are those of its jobs' recipients. Those where it is day are sent at once, the next ones when their hours
// begin, and not before. Others wait in timers, jobs without a zone too, and no job is lost or sent twice.
func TestRecipientsHours(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4})
	opens := time.Now().UTC().Add(75 * time.Second).Truncate(time.Minute)
	hours := opens.Format("15:04") + "-" + opens.Add(3*time.Hour).Format("15:04")
	if out, err := s.try("campaign", "create", "c", "--rate", "200", "--active-hours", hours, "--time-zone", "recipient"); err == nil ||
		!strings.Contains(out, "time_zone_missing") || !strings.Contains(out, "hold") {
		t.Errorf("%v: %s", err, out)
	}
	s.run("campaign", "create", "c", "--rate", "200", "--active-hours", hours, "--time-zone", "recipient", "--time-zone-missing", "hold")
	zones := map[string]string{"day": "Etc/GMT-1", "dawn": "UTC", "night": "Etc/GMT+6", "nowhere": "", "mars": "Mars/Olympus"}
	const each = 20
	var jobs []job
	for kind, zone := range zones {
		for i := range each {
			j := job{campaign: "c", id: fmt.Sprintf("%s-%d", kind, i)}
			if zone != "" {
				j.headers = []kafka.Header{header("pacer-time-zone", zone)}
			}
			jobs = append(jobs, j)
		}
	}
	d := s.started("one")
	s.publish(jobs)
	arrived := func(kind string) (at []int64) {
		for _, a := range s.receiver.arrivals("") {
			if strings.HasPrefix(a.id, kind+"-") {
				at = append(at, a.at)
			}
		}
		return at
	}
	s.await(20*time.Second, "the jobs where it is day", func() bool { return len(arrived("day")) == each })
	if out := s.run("explain", "c"); !strings.Contains(out, hours+" (clocks of each recipient; without a zone: hold)") {
		t.Error(out)
	}
	s.await(time.Until(opens)+15*time.Second, "the jobs whose hours begin", func() bool { return len(arrived("dawn")) == each })
	for _, at := range arrived("dawn") {
		if at < opens.Sub(s.receiver.began).Microseconds() {
			t.Errorf("a job was sent %s before its hours", opens.Sub(s.receiver.began)-time.Duration(at)*time.Microsecond)
		}
	}
	waiting := map[string]int{}
	s.await(10*time.Second, "the commits of what was sent", func() bool {
		clear(waiting)
		s.eachOpen(func(topic string, r delivery.Record) {
			kind, _, _ := strings.Cut(r.Header("pacer-job-id"), "-")
			waiting[kind+" "+strings.TrimRight(strings.TrimPrefix(topic, s.prefix), "0123456789smh")+" "+r.Header("pacer-reason")]++
		})
		return len(waiting) == 3
	})
	for what, n := range map[string]int{"night timer. hours": each, "nowhere timer. no_time_zone": each, "mars dead invalid_header": each} {
		if waiting[what] != n {
			t.Errorf("%s: %d of %d; %v", what, waiting[what], n, waiting)
		}
	}
	if n := s.receiver.count(""); n != 2*each {
		t.Errorf("%d jobs were sent, not %d", n, 2*each)
	}
	if !strings.Contains(d.log.String(), "they name no time zone") {
		t.Error("the log does not say that jobs without a zone wait")
	}
}
