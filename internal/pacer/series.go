package pacer

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pacer/pacer/internal/delivery"
)

// The labels of a series.
const (
	campaignLabel = "campaign"
	outcomeLabel  = "outcome"
)

// series is the number of jobs of a campaign with an outcome, as it was when it was read. It is a prometheus.Metric whose labels
// are not made and checked at every scrape: those of a campaign live as long as its account.
type series struct {
	desc   *prometheus.Desc
	labels [2]*dto.LabelPair // campaign, outcome: in the order of their names
	jobs   float64
}

var (
	unknownCampaign = labelOf(campaignLabel, delivery.UnknownCampaign)
	otherCampaigns  = labelOf(campaignLabel, others)

	outcomes = func() (labels [len(byOutcome{})]*dto.LabelPair) {
		for _, o := range delivery.Outcomes {
			labels[o] = labelOf(outcomeLabel, o.String())
		}
		return labels
	}()
)

func labelOf(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *series) Write(m *dto.Metric) error {
	m.Label = s.labels[:]
	m.Counter = &dto.Counter{Value: &s.jobs}
	return nil
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector.
func (c *counts) Collect(metrics chan<- prometheus.Metric) {
	list := c.series()
	for i := range list { // not while the lock is held: the scheduler waits for it, and whoever reads the channel may be slow
		metrics <- &list[i]
	}
}

// series returns what Collect shows. The scheduler waits while the lock is held, so that only numbers are read then: there is room
// for what most campaigns have before, and what is shown is made of it afterwards.
func (c *counts) series() []series {
	list := make([]series, 0, 2*c.busy()+2*len(delivery.Outcomes))
	show := func(campaign *dto.LabelPair, o delivery.Outcome, n int64) {
		list = append(list, series{desc: c.desc, labels: [...]*dto.LabelPair{campaign, outcomes[o]}, jobs: float64(n)})
	}
	for _, o := range delivery.Outcomes {
		show(unknownCampaign, o, c.unknown.Jobs(o))
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
				show(a.label, o, n)
			}
		}
	}
	if c.hidden {
		for _, o := range delivery.Outcomes {
			show(otherCampaigns, o, c.others[o])
		}
	}
	return list
}

// busy is how many campaigns have had jobs.
func (c *counts) busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}
