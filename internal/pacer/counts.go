package pacer

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// counts keeps an account for each campaign of the catalog that has had jobs here, and one for all other jobs, so that the
// labels of metrics stay a closed set. The scheduler says which campaigns there are, and gives each job its account when it
// places it; the goroutine that settles the job adds to it. As a prometheus.Collector it shows the outcomes that occurred, and
// from the first job of a campaign on those that rules look at, so that these begin at 0.
type counts struct {
	settled, success, failure family
	unknown                   delivery.Account // of jobs whose campaign is not in the catalog
	shows                     func(campaign string) bool

	mu     sync.Mutex // guards what follows; the delivery.Accounts need no lock
	byID   map[string]*account
	others byOutcome // of campaigns without series of their own
	hidden bool      // there were such campaigns
}

// account is what is kept of a campaign.
type account struct {
	delivery.Account
	folded *byOutcome // the part that is in the others; nil for none
}

// byOutcome counts jobs.
type byOutcome [delivery.OutcomeRejected + 1]int64

// others is the label of all campaigns without series of their own.
const others = "(others)"

// newCounts makes counts that have series for the campaigns that shows tells; nil: for all.
func newCounts(r prometheus.Registerer, shows func(campaign string) bool) *counts {
	if shows == nil {
		shows = func(string) bool { return true }
	}
	c := &counts{
		byID: map[string]*account{}, shows: shows,
		settled: newFamily(prometheus.CounterValue, "pacer_jobs_settled_total", "Jobs whose outcome became durable, by campaign and outcome.", "outcome"),
		success: newFamily(prometheus.GaugeValue, "pacer_campaign_last_success_timestamp_seconds", "When the sink last took a job of the campaign from this daemon."),
		failure: newFamily(prometheus.GaugeValue, "pacer_campaign_last_error_timestamp_seconds",
			"When the sink last failed a job of the campaign that this daemon sent: it could not be reached, did not answer, or asked to send the job later."),
	}
	r.MustRegister(c)
	return c
}

// know is the campaign's account, made at the first call.
func (c *counts) know(campaign string) *delivery.Account {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.byID[campaign]
	if a == nil {
		a = &account{}
		c.byID[campaign] = a
	}
	return &a.Account
}

// forget drops the account of a campaign that is not in the catalog any more.
func (c *counts) forget(campaign string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.byID[campaign]; a != nil && !c.shows(campaign) {
		c.fold(a)
	}
	delete(c.byID, campaign)
}

// fold moves what was counted of a campaign to the others, where it stays: no series ever goes back. A series that the campaign
// gets again begins at 0.
func (c *counts) fold(a *account) {
	c.hidden = true
	if a.folded == nil {
		a.folded = &byOutcome{}
	}
	for _, o := range delivery.Outcomes {
		n := a.Jobs(o)
		c.others[o] += n - a.folded[o]
		a.folded[o] = n
	}
}

// countingReceipt counts jobs and settles them.
type countingReceipt struct {
	counts *counts
	next   delivery.Receipt
}

// Settle implements delivery.Receipt.
func (r *countingReceipt) Settle(j *delivery.Job, o delivery.Outcome) {
	account := j.Account
	if account == nil {
		account = &r.counts.unknown
	}
	account.Add(j, o)
	r.next.Settle(j, o)
}

// Busy returns how many campaigns have had jobs here.
func (p *Pacer) Busy() int { return p.counts.busy() }

// Receipt counts the jobs that are settled at next.
func (p *Pacer) Receipt(next delivery.Receipt) delivery.Receipt {
	return &countingReceipt{counts: p.counts, next: next}
}

// Tallies lists the work of this daemon for each campaign of the catalog that had jobs here. A campaign that was
// deleted, and some minutes later created again, begins at zero.
func (p *Pacer) Tallies() []delivery.Tally {
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	list := make([]delivery.Tally, 0, len(p.counts.byID))
	for campaign, a := range p.counts.byID {
		list = append(list, a.Tally(campaign))
	}
	return list
}

type metrics struct {
	lateness  prometheus.Histogram
	late      metric.Histogram // the same, finer
	forfeited prometheus.Counter
	quantum   prometheus.Gauge
	queued    prometheus.Gauge
	queues    prometheus.Gauge

	closedDestinations *prometheus.GaugeVec // by sink
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	return &metrics{
		lateness: factory.NewHistogram(metric.Latency("pacer_slot_lateness_seconds", "How long after its slot a job was passed to its sink.",
			.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .05, .1, 1)),
		forfeited: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_slots_forfeited_total", Help: "Slots given up because they could not be used in time.",
		}),
		quantum: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_quantum_seconds", Help: "Stretch of a campaign's timeline that is asked for at once.",
		}),
		queued: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_jobs_queued", Help: "Jobs held in memory, waiting for their slots.",
		}),
		queues: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_queues", Help: "Campaigns with a queue in this daemon.",
		}),
		closedDestinations: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_destinations_closed", Help: "Destinations of a sink whose own gates are closed or half-open, as far as this daemon knows.",
		}, []string{"sink"}),
	}
}

// Readings are figures of this daemon as a whole: of slots, those since the start.
type Readings struct {
	Quantum   time.Duration
	Forfeited uint64
	Lateness  metric.Counts // of jobs that were passed to their sinks
}

// Readings returns the figures of this daemon. It may be called concurrently.
func (p *Pacer) Readings() Readings {
	return Readings{
		Quantum:   time.Duration(metric.Value(p.metrics.quantum) * float64(time.Second)),
		Forfeited: uint64(metric.Value(p.metrics.forfeited)), Lateness: p.metrics.late.Counts(),
	}
}
