package app

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// Names of the demo's sinks.
const (
	demoSink    = "receiver"
	partnerSink = "partner" // answers some jobs with 429 or 500
)

// surplus is how much more is published than can be sent, so that no campaign runs dry and the report has something to
// find in the broker.
const surplus = 1.12

// scene is what the demo shows: who wants to send how fast, and what changes on the way. It is immutable.
type scene struct {
	duration  time.Duration
	campaigns []sceneCampaign
	quota     delivery.Quota
	acts      []act // in order of time
}

// sceneCampaign is one campaign of the scene.
type sceneCampaign struct {
	id     string
	rate   int64 // per second, at the start
	sink   string
	quotas []string
	weight int64
	jobs   int    // published in all
	about  string // for the live table
}

// act is one change while the demo runs.
type act struct {
	at       time.Duration
	campaign string
	rate     int64           // set the send_rate to this; 0 = the act is about the status
	status   delivery.Status // set the status to this
}

// say describes the act for people.
func (a act) say() string {
	switch {
	case a.rate > 0:
		return fmt.Sprintf("%s: send_rate raised to %d/s", a.campaign, a.rate)
	case a.status == delivery.StatusPaused:
		return a.campaign + ": paused"
	default:
		return a.campaign + ": resumed"
	}
}

// newScene lays the scene out over the duration.
func newScene(duration time.Duration) *scene {
	quota := demoQuota(duration)
	shared := []string{quota.ID}
	s := &scene{duration: duration, quota: quota, campaigns: []sceneCampaign{
		{id: "trickle", rate: 10, sink: demoSink, weight: 1, about: "slow, beside a fast one on the same partitions"},
		{id: "steady", rate: 150, sink: demoSink, weight: 1, about: "raised to 300/s half-way"},
		{id: "fast", rate: 1000, sink: demoSink, weight: 1, about: "a thousand a second, one at a time"},
		{id: "reminders", rate: 60, sink: demoSink, weight: 1, about: "paused and resumed"},
		{id: "alpha", rate: 80, sink: demoSink, weight: 1, quotas: shared, about: "shares a quota with beta"},
		{id: "beta", rate: 80, sink: demoSink, weight: 1, quotas: shared, about: "shares a quota with alpha"},
		{id: "partner", rate: 40, sink: partnerSink, weight: 1, about: "its destination answers some 429 and 500"},
	}}
	s.acts = []act{
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

// demoQuota is a quota as providers have them, several windows that all count, with minutes and hours scaled down to
// seconds. The tightest window is the second one.
//
// A sliding window gives out its limit, then waits until it has slid on: a little more than one span later. The span is
// such that the fourth share falls into the last tenth of the demo. So even with these delays, and with shares that are
// not exactly even, each campaign can come to what the window allows on average.
func demoQuota(duration time.Duration) delivery.Quota {
	long := (duration * 29 / 100).Truncate(time.Millisecond)
	window := func(span time.Duration, rate float64) delivery.Window {
		return delivery.Window{Span: span, Limit: int64(math.Round(rate * span.Seconds()))}
	}
	return delivery.Quota{ID: "provider", Windows: []delivery.Window{
		window((long / 2).Truncate(time.Millisecond), 40), window(long, 30), window(2*long, 40),
	}}
}

// most is about how many jobs a campaign can send in the whole scene, pauses left aside.
func (s *scene) most(c *sceneCampaign) float64 {
	total, rate, since := 0.0, float64(c.rate), time.Duration(0)
	for _, a := range s.acts {
		if a.campaign == c.id && a.rate > 0 {
			total += rate * (a.at - since).Seconds()
			rate, since = float64(a.rate), a.at
		}
	}
	total += rate * (s.duration - since).Seconds()
	if len(c.quotas) == 0 {
		return total
	}
	// The windows are full at the start, so there may be a span's worth on top of the average.
	for _, w := range s.quota.Windows {
		total = min(total, float64(w.Limit)*(s.duration.Seconds()/w.Span.Seconds()+1))
	}
	return total
}

// jobID names a campaign's nth job.
func jobID(campaign string, n int) string { return fmt.Sprintf("%s-%06d", campaign, n) }

// ids lists the ids of all jobs of a campaign.
func (c *sceneCampaign) ids() []string {
	ids := make([]string, c.jobs)
	for n := range ids {
		ids[n] = jobID(c.id, n)
	}
	return ids
}

// plannedJob is the nth job of a campaign, in its place among those of the others.
type plannedJob struct {
	campaign string
	n        int
	share    float64 // of its campaign's jobs that come before it
}

// plan mixes the jobs of all campaigns evenly, as producers that do not know each other do.
func (s *scene) plan() []plannedJob {
	var jobs []plannedJob
	for i := range s.campaigns {
		c := &s.campaigns[i]
		for n := range c.jobs {
			jobs = append(jobs, plannedJob{c.id, n, float64(n) / float64(c.jobs)})
		}
	}
	slices.SortStableFunc(jobs, func(a, b plannedJob) int { return cmp.Compare(a.share, b.share) })
	return jobs
}

// wave is a stretch of the plan that is published at once.
type wave struct {
	at   time.Duration // after the first one
	jobs []plannedJob
}

// waves cuts the plan: a first wave, so that every campaign has jobs at once, then bit by bit, always about three
// seconds ahead of what campaigns without a hindrance can send. A campaign that is held up (by a quota, a pause, a
// closed gate) soon has more than its queue takes, and the lanes come into play.
func (s *scene) waves() []wave {
	plan := s.plan()
	cut := func(share float64) int {
		i, _ := slices.BinarySearchFunc(plan, share, func(j plannedJob, t float64) int { return cmp.Compare(j.share, t) })
		return i
	}
	const first, steps = 0.15, 38
	waves := []wave{{0, plan[:cut(first)]}}
	for i := range steps {
		from, to := first+(1-first)*float64(i)/steps, first+(1-first)*float64(i+1)/steps
		if i == steps-1 {
			to = 2 // the rest, whatever rounding makes of it
		}
		waves = append(waves, wave{s.duration * time.Duration(1+i) / (steps + 2), plan[cut(from):cut(to)]})
	}
	return waves
}

// recordsOf makes the Kafka records of planned jobs.
func recordsOf(jobs []plannedJob) iter.Seq2[requeue.Record, error] {
	return func(yield func(requeue.Record, error) bool) {
		for _, j := range jobs {
			id := jobID(j.campaign, j.n)
			record := requeue.Record{
				Value: []byte(`{"to":"` + id + `","text":"hello"}`),
				Headers: []delivery.Header{
					{Key: delivery.HeaderCampaign, Value: []byte(j.campaign)},
					{Key: delivery.HeaderJobID, Value: []byte(id)},
					{Key: delivery.HeaderContentType, Value: []byte("application/json")},
				},
			}
			if !yield(record, nil) {
				return
			}
		}
	}
}
