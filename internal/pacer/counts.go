package pacer

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// counts keeps an account for each campaign of the catalog that has had jobs here, and one for all other jobs, so that the
// labels of metrics stay a closed set. The scheduler says which campaigns there are, and gives each job its account when it
// places it; the goroutine that settles the job adds to it. See collector.
type counts struct {
	unknown delivery.Account // of jobs whose campaign is not in the catalog
	shows   func(campaign string) bool

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
	c := &counts{byID: map[string]*account{}, shows: shows}
	r.MustRegister(collector{c})
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
func (c *counts) Busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// Receipt counts the jobs that are settled at next.
func (c *counts) Receipt(next delivery.Receipt) delivery.Receipt {
	return &countingReceipt{counts: c, next: next}
}

// Tallies lists the work of this daemon for each campaign of the catalog that had jobs here. A campaign that was
// deleted, and some minutes later created again, begins at zero.
func (c *counts) Tallies() []delivery.Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]delivery.Tally, 0, len(c.byID))
	for campaign, a := range c.byID {
		list = append(list, a.Tally(campaign))
	}
	return list
}

// collector shows the outcomes of campaigns that occurred, and from the first job of a campaign on those that rules look at, so that
// these begin at 0.
type collector struct{ *counts }

// The metrics of a campaign.
var (
	settledTotal = prometheus.NewDesc("pacer_jobs_settled_total", "Jobs whose outcome became durable, by campaign and outcome.",
		[]string{"campaign", "outcome"}, nil)
	lastSuccess = prometheus.NewDesc("pacer_campaign_last_success_timestamp_seconds",
		"When the sink last took a job of the campaign from this daemon.", []string{"campaign"}, nil)
	lastError = prometheus.NewDesc("pacer_campaign_last_error_timestamp_seconds",
		"When the sink last failed a job of the campaign that this daemon sent: it could not be reached, did not answer, or asked to send the job later.",
		[]string{"campaign"}, nil)
)

// series is one series as it was when it was read.
type series struct {
	of       *prometheus.Desc
	campaign string
	outcome  delivery.Outcome // of settledTotal
	value    float64
}

// Describe implements prometheus.Collector.
func (collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{settledTotal, lastSuccess, lastError} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range c.series() { // not while the lock is held: the scheduler waits for it, and the reader of the channel may be slow
		if s.of == settledTotal {
			metrics <- prometheus.MustNewConstMetric(s.of, prometheus.CounterValue, s.value, s.campaign, s.outcome.String())
		} else {
			metrics <- prometheus.MustNewConstMetric(s.of, prometheus.GaugeValue, s.value, s.campaign)
		}
	}
}

// series returns what Collect shows. The scheduler waits while the lock is held, so that only numbers are read then: there is room
// for what most campaigns have before, and what is shown is made of it afterwards.
func (c *counts) series() []series {
	list := make([]series, 0, 3*c.Busy()+2*len(delivery.Outcomes))
	show := func(campaign string, o delivery.Outcome, n int64) {
		list = append(list, series{settledTotal, campaign, o, float64(n)})
	}
	showTime := func(of *prometheus.Desc, campaign string, at time.Time) {
		if !at.IsZero() {
			list = append(list, series{of, campaign, 0, float64(at.UnixMilli()) / 1000})
		}
	}
	for _, o := range delivery.Outcomes {
		show(delivery.UnknownCampaign, o, c.unknown.Jobs(o))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for campaign, a := range c.byID {
		if !c.shows(campaign) {
			c.fold(a)
			continue
		}
		for _, o := range delivery.Outcomes {
			n := a.Jobs(o)
			if a.folded != nil {
				n -= a.folded[o]
			}
			if n > 0 || o == delivery.OutcomeDelivered || o == delivery.OutcomeDead {
				show(campaign, o, n)
			}
		}
		success, failure := a.Last()
		showTime(lastSuccess, campaign, success)
		showTime(lastError, campaign, failure)
	}
	if c.hidden {
		for _, o := range delivery.Outcomes {
			show(others, o, c.others[o])
		}
	}
	return list
}
