package pacer

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// counts keeps an account for each campaign of the catalog that has had jobs here, and one for all other jobs, so that the
// labels of metrics stay a closed set. The scheduler says which campaigns there are, and gives each job its account when it
// places it; the goroutine that settles the job adds to it. It is a collector of the series of all accounts.
type counts struct {
	unknown delivery.Account // of jobs whose campaign is not in the catalog
	others  delivery.Account // of jobs whose campaign has no series of its own; its jobs have accounts, too
	shows   func(campaign string) bool
	hasRow  func(destination string) bool

	mu            sync.Mutex // guards what follows; the delivery.Accounts need no lock
	byID          map[string]*delivery.Account
	byDestination *simplelru.LRU[string, *destinationAccount] // those that had jobs last
}

// destinationAccount is the account of a destination, and its last answers. The latter are under the lock of counts.
type destinationAccount struct {
	delivery.Account
	answers []delivery.Answer // the newest last
	fresh   int               // how many of them were not told
	told    delivery.Answer   // the last one that was
}

const (
	// answersEvery is how often the answers of a destination are told while they mean the same.
	answersEvery = 30 * time.Second
	// shownAnswer is how many bytes of an answer are kept.
	shownAnswer = 128
)

// others is the label of all campaigns without series of their own.
const others = "(others)"

// newCounts makes counts that have series for the campaigns that shows tells. Of destinations, those with a row have accounts.
func newCounts(r prometheus.Registerer, shows, hasRow func(string) bool) *counts {
	c := &counts{byID: map[string]*delivery.Account{}, hasRow: hasRow}
	c.byDestination, _ = simplelru.NewLRU[string, *destinationAccount](2*maxDestinations, nil) // fails only without a size
	c.shows = func(campaign string) bool { return campaign != others && shows(campaign) }
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

type countingReceipt struct {
	counts *counts
	next   delivery.Receipt
}

// Settle implements delivery.Receipt.
func (r *countingReceipt) Settle(j *delivery.Job, o delivery.Outcome) {
	if account := j.Account; account == nil {
		r.counts.unknown.Add(j, o)
	} else if account.Add(j, o); !r.counts.shows(j.Campaign) {
		r.counts.others.Add(j, o)
	}
	if o.Final() {
		if account := r.counts.destination(j); account != nil {
			account.Add(j, o)
		}
	}
	r.next.Settle(j, o)
}

// destination is the account of a job's destination, nil if that has no row. It is forgotten when twice maxDestinations others had jobs since,
// long after it was saved.
func (c *counts) destination(j *delivery.Job) *destinationAccount {
	id := j.Destination
	if id == "" || j.FoundDestination() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known := c.byDestination.Get(id)
	if !known && c.hasRow(id) {
		a = &destinationAccount{}
		c.byDestination.Add(strings.Clone(id), a) // of the memory of a job
	}
	return a
}

// answered notes the answer of a job's destination, if that has a row.
func (c *counts) answered(j *delivery.Job, r *delivery.Result, at time.Time) {
	if r.Class >= delivery.Interrupted { // it was not asked, or did not answer
		return
	}
	account := c.destination(j)
	if account == nil {
		return
	}
	answer := delivery.Answer{At: at, Job: strings.Clone(j.ID), Class: r.Class.String(), Status: r.Status, Detail: record.OneLine(r.Detail, shownAnswer)}
	if r.Provider != nil {
		answer.Answer = record.OneLine(r.Provider.Answer, shownAnswer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if account.answers = append(account.answers, answer); len(account.answers) > delivery.KeptAnswers {
		account.answers = account.answers[1:]
	}
	account.fresh = min(account.fresh+1, delivery.KeptAnswers)
}

// Answers returns the last answers of destinations that have given others since they were returned last: of each at once where they mean
// something else, and otherwise every answersEvery.
func (c *counts) Answers() map[string][]delivery.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]delivery.Answer{}
	for _, id := range c.byDestination.Keys() {
		a, _ := c.byDestination.Peek(id)
		if a.fresh == 0 {
			continue
		}
		last := a.answers[len(a.answers)-1]
		if last.Class == a.told.Class && last.At.Sub(a.told.At) < answersEvery && time.Since(last.At) < answersEvery {
			continue
		}
		all[id] = slices.Clone(a.answers[len(a.answers)-a.fresh:])
		a.fresh, a.told = 0, last
	}
	return all
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

type accountOf struct {
	campaign string
	*delivery.Account
}

// list returns the accounts of all campaigns. The scheduler waits while the lock is held, so nothing is made for each of them.
func (c *counts) list() []accountOf {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]accountOf, 0, len(c.byID))
	for campaign, a := range c.byID {
		list = append(list, accountOf{campaign, a})
	}
	return list
}

// Tallies lists the work of this daemon for each campaign of the catalog that had jobs here, and for the destinations that had jobs lately. A
// campaign that was deleted, and some minutes later created again, begins at zero, and so does a destination that was forgotten.
func (c *counts) Tallies() (list []delivery.Tally) {
	for _, a := range c.list() {
		list = append(list, a.Tally(a.campaign))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.byDestination.Keys() {
		a, _ := c.byDestination.Peek(id)
		list = append(list, delivery.Tally{Destination: id, Settled: a.Tally("").Settled})
	}
	return list
}

// The metrics of a campaign.
var (
	settledTotal = prometheus.NewDesc("pacer_jobs_settled_total", "Jobs whose outcome became durable, by campaign and outcome.",
		[]string{"campaign", "outcome"}, nil)
	suppressed = prometheus.NewDesc("pacer_duplicates_suppressed_total", "Jobs not sent because one with their id had been delivered.",
		[]string{"campaign"}, nil)
	lastSuccess = prometheus.NewDesc("pacer_campaign_last_success_timestamp_seconds",
		"When the sink last took a job of the campaign from this daemon.", []string{"campaign"}, nil)
	lastError = prometheus.NewDesc("pacer_campaign_last_error_timestamp_seconds",
		"When the sink last failed a job of the campaign that this daemon sent: it could not be reached, did not answer, or asked to send the job later.",
		[]string{"campaign"}, nil)
)

// Describe implements prometheus.Collector.
func (*counts) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{settledTotal, suppressed, lastSuccess, lastError} {
		descs <- d
	}
}

// Collect implements prometheus.Collector. It shows the outcomes that occurred, and from the first job of a campaign on those that rules
// look at, so that these begin at 0.
func (c *counts) Collect(metrics chan<- prometheus.Metric) {
	showTime := func(of *prometheus.Desc, campaign string, at time.Time) {
		if !at.IsZero() {
			metrics <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(at.UnixMilli())/1000, campaign)
		}
	}
	for _, a := range append(c.list(), accountOf{delivery.UnknownCampaign, &c.unknown}, accountOf{others, &c.others}) {
		known := a.Account != &c.unknown && a.Account != &c.others
		if known && !c.shows(a.campaign) {
			continue
		}
		for _, o := range delivery.Outcomes {
			if n := a.Jobs(o); n > 0 || !known || o == delivery.OutcomeDelivered || o == delivery.OutcomeDead {
				metrics <- prometheus.MustNewConstMetric(settledTotal, prometheus.CounterValue, float64(n), a.campaign, o.String())
			}
		}
		if n := a.Jobs(delivery.OutcomeDuplicate); n > 0 {
			metrics <- prometheus.MustNewConstMetric(suppressed, prometheus.CounterValue, float64(n), a.campaign)
		}
		success, failure := a.Last()
		showTime(lastSuccess, a.campaign, success)
		showTime(lastError, a.campaign, failure)
	}
}
