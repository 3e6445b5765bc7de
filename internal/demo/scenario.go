package demo

import (
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// Names of the demo's sinks.
const (
	demoSink    = "receiver"
	partnerSink = "partner" // answers some jobs with 429 or 500
)

// surplus is how much more is published than can be sent, so that no campaign runs out of jobs and some are left in
// the broker for the report.
const surplus = 1.12

// scenario is what the demo plays: campaigns with their rates, and changes over time. It is immutable.
type scenario struct {
	duration  time.Duration
	campaigns []scenarioCampaign
	quota     delivery.Quota
	steps     []step // in the order of their times
}

// scenarioCampaign is one campaign of the scenario.
type scenarioCampaign struct {
	id     string
	rate   int64 // per second, at the start
	sink   string
	quotas []string
	jobs   int    // published in all
	about  string // for the live table
}

// step is one change during the demo.
type step struct {
	at       time.Duration
	campaign string
	rate     int64           // the new send_rate; 0: the step changes the status
	status   delivery.Status // the new status
}

func (a step) describe() string {
	switch {
	case a.rate > 0:
		return fmt.Sprintf("%s: send_rate raised to %d/s", a.campaign, a.rate)
	case a.status == delivery.StatusPaused:
		return a.campaign + ": paused"
	default:
		return a.campaign + ": resumed"
	}
}

func newScenario(duration time.Duration) *scenario {
	quota := newQuota(duration)
	shared := []string{quota.ID}
	s := &scenario{duration: duration, quota: quota, campaigns: []scenarioCampaign{
		{id: "trickle", rate: 10, sink: demoSink, about: "slow, beside a fast one on the same partitions"},
		{id: "steady", rate: 150, sink: demoSink, about: "raised to 300/s half-way"},
		{id: "fast", rate: 1000, sink: demoSink, about: "a thousand a second, one at a time"},
		{id: "reminders", rate: 60, sink: demoSink, about: "paused and resumed"},
		{id: "alpha", rate: 80, sink: demoSink, quotas: shared, about: "shares a quota with beta"},
		{id: "beta", rate: 80, sink: demoSink, quotas: shared, about: "shares a quota with alpha"},
		{id: "partner", rate: 40, sink: partnerSink, about: "its destination answers some 429 and 500"},
	}}
	s.steps = []step{
		{at: duration * 4 / 10, campaign: "reminders", status: delivery.StatusPaused},
		{at: duration / 2, campaign: "steady", rate: 300},
		{at: duration * 6 / 10, campaign: "reminders", status: delivery.StatusActive},
	}
	for i := range s.campaigns {
		c := &s.campaigns[i]
		c.jobs = int(math.Ceil(s.most(c)*surplus)) + 20
	}
	return s
}

// newQuota returns a quota like those of providers, with several windows that all apply, and with minutes and hours
// scaled down to seconds. The tightest window is the second one.
//
// A sliding window grants its limit and is then empty until a little more than one span later. The fourth such grant falls into the last
// tenth of the demo. So each campaign can reach the window's average in spite of delays and uneven shares.
func newQuota(duration time.Duration) delivery.Quota {
	long := (duration * 29 / 100).Truncate(time.Millisecond)
	window := func(span time.Duration, rate float64) delivery.Window {
		return delivery.Window{Span: span, Limit: int64(math.Round(rate * span.Seconds()))}
	}
	return delivery.Quota{ID: "provider", Windows: []delivery.Window{
		window((long / 2).Truncate(time.Millisecond), 40), window(long, 30), window(2*long, 40),
	}}
}

// most returns about how many jobs a campaign can send in the whole scenario, pauses ignored.
func (s *scenario) most(c *scenarioCampaign) float64 {
	total, rate, since := 0.0, float64(c.rate), time.Duration(0)
	for _, a := range s.steps {
		if a.campaign == c.id && a.rate > 0 {
			total += rate * (a.at - since).Seconds()
			rate, since = float64(a.rate), a.at
		}
	}
	total += rate * (s.duration - since).Seconds()
	if len(c.quotas) == 0 {
		return total
	}
	// The windows are full at the start, so a span's worth may come on top of the average.
	for _, w := range s.quota.Windows {
		total = min(total, float64(w.Limit)*(s.duration.Seconds()/w.Span.Seconds()+1))
	}
	return total
}

func jobID(campaign string, n int) string { return fmt.Sprintf("%s-%06d", campaign, n) }

// Jobs are published in waves. The first ones come together, so that every campaign has jobs at once. Each of the others is about three
// seconds ahead of what campaigns without a hindrance can send. A campaign that is held up (by a quota, a pause, a closed gate) soon has more
// than its queue takes, and the lanes come into play.
const (
	waves      = 40
	firstWaves = 6
	parts      = 18 // of a wave, which mix the jobs of all campaigns evenly, as producers that do not know each other do
)

// waveAt is when the nth wave is published, after the first ones.
func (s *scenario) waveAt(n int) time.Duration {
	return s.duration * time.Duration(n-firstWaves) / (waves - firstWaves + 2)
}

// published is how many jobs of the campaign n waves have.
func (c *scenarioCampaign) published(n int) int { return c.jobs * n / waves }

// records yields the jobs of the waves after one, up to another.
func (s *scenario) records(after, to int) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		for part := after * parts; part < to*parts; part++ {
			for i := range s.campaigns {
				c := &s.campaigns[i]
				for n := c.jobs * part / (waves * parts); n < c.jobs*(part+1)/(waves*parts); n++ {
					id := jobID(c.id, n)
					if !yield(record.New(c.id, id, []byte(`{"to":"`+id+`","text":"hello"}`)), nil) {
						return
					}
				}
			}
		}
	}
}
