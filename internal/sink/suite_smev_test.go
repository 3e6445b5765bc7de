package sink_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/smev"
)

// documentOf is the payload of a job for a recipient, and recipientOf finds it in what arrives.
func documentOf(recipient string) string {
	return `<q:Ask xmlns:q="urn://example/1.0">` + recipient + `</q:Ask>`
}

func recipientOf(document string) string {
	_, rest, _ := strings.Cut(document, ">")
	name, _, _ := strings.Cut(rest, "<")
	return name
}

func smevJob(recipient string) *delivery.Job {
	return &delivery.Job{
		ID: "job of " + recipient, Campaign: "spring", Payload: []byte(documentOf(recipient)),
		Reading: delivery.Reading{Published: delivery.ShortStampOf(time.Now())},
	}
}

var smevActs = []act{takes, refuses, fails, failsFor7s, throttles, distrusts, hangs, resets, babbles, trickles, mumbles, echoes}

var smevPlay, smevSOAPPlay = adapterPlay("rest"), adapterPlay("soap")

func adapterPlay(protocol string) play {
	return play{
		acts: smevActs, many: 25, // for each protocol
		shorten: func(c sink.Config, d time.Duration) { c.(*smev.Config).Timeout = d },
		divert:  func(c sink.Config, addr string) { c.(*smev.Config).URL = "https://" + addr },
		start: func(t *testing.T, treat func(string, int) act) stage {
			received := newTally()
			var a *sinktest.Adapter
			a = sinktest.StartAdapter(t, sinktest.AdapterOptions{Treat: func(c *sinktest.Call, r sinktest.AdapterRequest, _ int) bool {
				recipient := recipientOf(r.Content)
				switch how := treat(recipient, received.add(recipient)); how {
				case refuses:
					a.Fault(c, "ValidationFault", "not by the schema: "+r.Content)
				case fails:
					a.Fault(c, "SystemFault", "no")
				case failsFor7s:
					c.Answer(503, "Retry-After", "7")
				case throttles:
					c.Answer(429, "Retry-After", "90")
				case distrusts:
					c.Answer(403)
				default:
					return misbehave(c, how, a.Accepted(c, r.ClientID))
				}
				return true
			}})
			c := smev.Default()
			c.URL, c.CAFile, c.ITSystem, c.Wait, c.Protocol = a.URL, a.CAFile, a.ItSystem, "accepted", protocol
			return stage{config: c, received: received.of, job: smevJob}
		},
	}
}

var smevDirectPlay = play{
	acts: smevActs, many: 50, shorten: smevPlay.shorten, divert: smevPlay.divert,
	start: func(t *testing.T, treat func(string, int) act) stage {
		received := newTally()
		var s *sinktest.SMEV
		s = sinktest.StartSMEV(t, sinktest.SMEVOptions{Treat: func(c *sinktest.Call, r sinktest.SMEVRequest, _ int) bool {
			recipient := recipientOf(r.Content)
			switch how := treat(recipient, received.add(recipient)); how {
			case refuses:
				s.Fault(c, "InvalidContent")
			case fails:
				s.Fault(c, "SMEVFailure")
			case failsFor7s:
				c.Answer(503, "Retry-After", "7")
			case throttles:
				c.Answer(429, "Retry-After", "90")
			case distrusts:
				s.Fault(c, "SenderIsNotRegistered")
			default:
				return misbehave(c, how, s.Accepted(r.MessageID))
			}
			return true
		}})
		c := smev.Default()
		c.Mode, c.URL, c.CAFile, c.Responses = "direct", s.URL, s.CAFile, "pacer.smev.responses"
		return stage{config: c, received: received.of, job: smevJob}
	},
}
