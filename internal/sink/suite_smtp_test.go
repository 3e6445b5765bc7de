package sink_test

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/smtp"
)

var smtpPlay = play{
	setting: "addr: ",
	acts:    []act{takes, rejects, refuses, fails, throttles, distrusts, hangs, resets, echoes},
	waits:   map[act]time.Duration{throttles: 10 * time.Second}, // a server does not say how long
	shorten: func(c sink.Config, d time.Duration) { c.(*smtp.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*smtp.Config).Addr = addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		const domain = "@example.org"
		s := sinktest.StartSMTP(t, sinktest.SMTPOptions{Treat: func(recipient string, n int) (how sinktest.MailTreatment) {
			switch treat(recipient[:len(recipient)-len(domain)], n) {
			case rejects:
				how.Recipient = sinktest.Refusal(550, [3]int{5, 1, 1}, "no such user here")
			case refuses:
				how.Message = sinktest.Refusal(554, [3]int{5, 7, 1}, "this looks like spam")
			case fails:
				how.Recipient = sinktest.Refusal(451, [3]int{4, 4, 1}, "try again later")
			case throttles:
				how.Message = sinktest.Refusal(452, [3]int{4, 3, 1}, "no space left")
			case distrusts:
				how.Message = sinktest.Refusal(530, [3]int{5, 7, 0}, "authentication required")
			case echoes:
				how.Recipient = sinktest.Refusal(550, [3]int{5, 1, 1}, "no, "+sinktest.MailUser+" with "+sinktest.MailPassword)
			case hangs:
				how.Hang = true
			case resets:
				how.Reset = true
			}
			return how
		}})
		c := smtp.Default()
		c.Addr, c.CAFile, c.Username, c.Password, c.RetryAfter = s.Addr, s.CAFile, sinktest.MailUser, sinktest.MailPassword, 90*time.Second
		c.From, c.Subject, c.Text = "news@example.com", "Hello", "{{ .Payload }}"
		return stage{
			config: c, received: func(recipient string) int { return s.Named(recipient + domain) }, secrets: []string{sinktest.MailPassword},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{ID: "job of " + recipient, Campaign: "spring", Payload: []byte("hello " + recipient), Meta: delivery.Meta{
					Headers: []delivery.Header{{Key: "to", Value: []byte(recipient + domain)}},
				}}
			},
		}
	},
}
