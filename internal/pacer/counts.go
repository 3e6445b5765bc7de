package pacer

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
)

// counts keeps an account for each campaign of the catalog that has had jobs here, and one for all other jobs, so that the
// labels of metrics stay a closed set. The scheduler says which campaigns there are, and gives each job its account when it
// places it; the goroutine that settles the job adds to it. As a prometheus.Collector it shows the outcomes that occurred.
type counts struct {
	desc    *prometheus.Desc
	unknown delivery.Account // of jobs whose campaign is not in the catalog

	mu   sync.Mutex // guards byID; the accounts need no lock
	byID map[string]*delivery.Account
}

func newCounts(r prometheus.Registerer) *counts {
	c := &counts{byID: map[string]*delivery.Account{}, desc: prometheus.NewDesc(
		"pacer_jobs_settled_total", "Jobs whose outcome became durable, by campaign and outcome.", []string{"campaign", "outcome"}, nil,
	)}
	r.MustRegister(c)
	return c
}

// know is the campaign's account, made at the first call.
func (c *counts) know(campaign string) *delivery.Account {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.byID[campaign]
	if a == nil {
		a = &delivery.Account{}
		c.byID[campaign] = a
	}
	return a
}

// forget drops the account of a campaign that is not in the catalog any more.
func (c *counts) forget(campaign string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, campaign)
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector.
func (c *counts) Collect(metrics chan<- prometheus.Metric) {
	show := func(campaign string, a *delivery.Account, least int64) {
		for _, o := range delivery.Outcomes {
			if n := a.Jobs(o); n >= least {
				metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n), campaign, o.String())
			}
		}
	}
	show(delivery.UnknownCampaign, &c.unknown, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	for campaign, a := range c.byID {
		show(campaign, a, 1)
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
func (p *Pacer) Busy() int {
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	return len(p.counts.byID)
}

// Receipt counts the jobs that are settled at next.
func (p *Pacer) Receipt(next delivery.Receipt) delivery.Receipt {
	return &countingReceipt{counts: p.counts, next: next}
}

// Tallies lists the work of this daemon for each campaign of the catalog that had jobs here. A campaign that was
// deleted, and some minutes later created again, begins at zero.
func (p *Pacer) Tallies() (list []delivery.Tally) {
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	for campaign, a := range p.counts.byID {
		list = append(list, a.Tally(campaign))
	}
	return list
}

type metrics struct {
	lateness  prometheus.Histogram
	forfeited prometheus.Counter
	quantum   prometheus.Gauge
	queued    prometheus.Gauge
	queues    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	factory := promauto.With(r)
	return &metrics{
		lateness: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "pacer_slot_lateness_seconds", Help: "How long after its slot a job was passed to its sink.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .05, .1, 1},
		}),
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
	}
}
