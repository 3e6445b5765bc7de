package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// poisoned is a sink with one recipient that is always told to wait.
type poisoned struct {
	name, settings string
	count          func() int // messages to other recipients
}

// TestAPoisonedJobCostsOthersNothing: one recipient is always told to wait. The other campaigns of its sink keep their rates, as the receivers
// count them, and the job becomes a dead letter. A sink without such a recipient measures the delays of the machine.
func TestAPoisonedJobCostsOthersNothing(t *testing.T) {
	t.Parallel()
	// The share is 99.9 % on a quiet machine, and 85 % if one failure closes the sink.
	const poison, good, rate, lasts, most, least = "poison", 2, 50, 10 * time.Second, 14 * time.Second, 0.9
	over := func(name string, status int, wait time.Duration) poisoned {
		r := newReceiver(t)
		r.answer = func(a arrival) (int, time.Duration) {
			if a.campaign == name+"-"+poison {
				return status, wait
			}
			return http.StatusOK, 0
		}
		return poisoned{
			name: name, settings: fmt.Sprintf(`type: http, url: %q, max_retry_after: 4s`, r.url),
			count: func() int { return r.count("") - r.count(name+"-"+poison) },
		}
	}
	var mails atomic.Int64
	mail := sinktest.StartSMTP(t, sinktest.SMTPOptions{Treat: func(recipient string, _ int) (how sinktest.MailTreatment) {
		if strings.HasPrefix(recipient, "mail-"+poison) {
			how.Message = sinktest.Refusal(451, [3]int{4, 3, 0}, "Mail server temporarily rejected message")
		} else {
			mails.Add(1)
		}
		return how
	}})
	sinks := []poisoned{
		over("without", http.StatusOK, 0), over("at-once", http.StatusTooManyRequests, 0), over("in-a-minute", http.StatusTooManyRequests, time.Minute),
		{
			name: "mail", count: func() int { return int(mails.Load()) },
			settings: fmt.Sprintf(`type: smtp, addr: %q, ca_file: %q, username: %s, password: %s, from: "news@example.com", subject: Hello, text: Hello,
      max_retry_after: 4s`, mail.Addr, mail.CAFile, sinktest.MailUser, sinktest.MailPassword),
		},
	}
	var sections strings.Builder
	for _, p := range sinks {
		fmt.Fprintf(&sections, "  %s: {%s}\n", p.name, p.settings)
	}
	s := newStack(t, stackOptions{partitions: 4, sinks: sections.String(), settings: "retry: {max_attempts: 2, initial: 200ms}"})
	var all, bad []job
	for _, p := range sinks {
		for i := range good + 1 {
			id, n := fmt.Sprint(p.name, "-", i), int(rate*(most+10*time.Second).Seconds())
			if i == good {
				id, n = p.name+"-"+poison, 1
			}
			s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ($1, $2, $3)`, id, rate, p.name)
			list := ofCampaign(id, 0, n)
			for i, j := range list {
				list[i].headers = []kafka.Header{header("to", j.id+"@example.org")}
			}
			if i == good {
				bad = append(bad, list...)
			} else {
				all = append(all, list...)
			}
		}
	}
	d := s.started("one")
	s.publish(all)
	for _, p := range sinks {
		s.await(20*time.Second, p.name+" to get messages", func() bool { return p.count() > good*rate })
	}

	counts := func() (list []int) {
		for _, p := range sinks {
			list = append(list, p.count())
		}
		return list
	}
	s.publish(bad)
	begun, before := time.Now(), counts()
	time.Sleep(lasts)
	for len(s.dead()) < len(bad)-1 && time.Since(begun) < most {
		time.Sleep(50 * time.Millisecond)
	}
	after, span := counts(), time.Since(begun)
	asked := good * rate * span.Seconds()
	machine := max(0, asked-float64(after[0]-before[0]))
	for i, p := range sinks {
		got := float64(after[i] - before[i])
		t.Logf("%s: %.0f messages in %s, %.1f %% of the campaigns' rates", p.name, got, span.Round(time.Millisecond), 100*got/asked)
		if got < least*asked-2*machine-good { // the span begins and ends between two jobs
			t.Errorf("%s: the other campaigns were sent %.0f messages of %.0f; %.0f were late because of the machine", p.name, got, asked, machine)
		}
	}
	for _, j := range bad[1:] {
		if why := s.dead()[j.id]; why != "attempts_exhausted" {
			t.Errorf("%s: dead letter %q", j.id, why)
		}
	}
	d.stop()
}
