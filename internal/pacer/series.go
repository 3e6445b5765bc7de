package pacer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// series is one series as it was when it was read.
type series struct {
	of       *family
	campaign string
	outcome  string // "" in families without this label
	value    float64
}

// family is a metric by campaign.
type family struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func newFamily(kind prometheus.ValueType, name, help string, labels ...string) family {
	return family{prometheus.NewDesc(name, help, append([]string{"campaign"}, labels...), nil), kind}
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(descs chan<- *prometheus.Desc) {
	for _, f := range []*family{&c.settled, &c.success, &c.failure} {
		descs <- f.Desc
	}
}

// Collect implements prometheus.Collector.
func (c *counts) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range c.series() { // not while the lock is held: the scheduler waits for it, and the reader of the channel may be slow
		labels := []string{s.campaign, s.outcome}
		if s.outcome == "" {
			labels = labels[:1]
		}
		metrics <- prometheus.MustNewConstMetric(s.of.Desc, s.of.kind, s.value, labels...)
	}
}

// series returns what Collect shows. The scheduler waits while the lock is held, so that only numbers are read then: there is room
// for what most campaigns have before, and what is shown is made of it afterwards.
func (c *counts) series() []series {
	list := make([]series, 0, 3*c.busy()+2*len(delivery.Outcomes))
	show := func(campaign string, o delivery.Outcome, n int64) {
		list = append(list, series{&c.settled, campaign, o.String(), float64(n)})
	}
	showTime := func(of *family, campaign string, at time.Time) {
		if !at.IsZero() {
			list = append(list, series{of, campaign, "", float64(at.UnixMilli()) / 1000})
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
		showTime(&c.success, campaign, success)
		showTime(&c.failure, campaign, failure)
	}
	if c.hidden {
		for _, o := range delivery.Outcomes {
			show(others, o, c.others[o])
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
