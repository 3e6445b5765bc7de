package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// heavyJobs makes jobs with these weights.
func heavyJobs(p *partition, from delivery.Place, campaign string, first int64, weights ...int64) []*delivery.Job {
	list := jobs(p, from, campaign, first, len(weights))
	for i, w := range weights {
		list[i].Weight = w
	}
	return list
}

// under is a campaign under one quota.
func under(id string, perSecond int64, q delivery.Quota) delivery.Campaign {
	c := campaign(id, perSecond)
	c.Quotas = []*delivery.Quota{&q}
	return c
}

// TestQuotasThatDoNotBindChangeNothing: a quota that is only tried out, rolled out to nothing, or may be exceeded a little
// neither condemns jobs that weigh more than its limit, nor shortens the horizon or the time for which a slot may be used. One that
// is rolled out in part allows jobs as heavy as the units of which the limit is that part.
func TestQuotasThatDoNotBindChangeNothing(t *testing.T) {
	w := []delivery.Window{{Span: time.Second, Limit: 5}}
	for name, tc := range map[string]struct {
		quota     delivery.Quota
		heaviest  int64
		asWithout bool // in all else the campaign is as without a quota
		model     bool // the reference model knows the mode
	}{
		"shadow":               {delivery.Quota{Mode: delivery.ModeShadow, Windows: w}, 1000, true, true},
		"rolled out to none":   {delivery.Quota{Exempt: 100, Windows: w}, 1000, true, true},
		"without windows":      {delivery.Quota{}, 1000, true, true},
		"eventual":             {delivery.Quota{Mode: delivery.ModeEventual, Windows: w}, 1000, true, false},
		"bytes":                {delivery.Quota{Mode: delivery.ModeEventual, Unit: delivery.UnitBytes, Windows: w}, 1000, true, false},
		"rolled out to 1 %":    {delivery.Quota{Exempt: 99, Windows: w}, 500, false, true},
		"rolled out to a half": {delivery.Quota{Exempt: 50, Windows: w}, 10, false, true},
		"strict":               {delivery.Quota{Windows: w}, 5, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.quota.ID, tc.quota.Revision = "q", 1
			c := under("c", 1000, tc.quota)
			one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
				f.offer(t, heavyJobs(newPartition("in/0"), delivery.FromIngress, "c", 0, tc.heaviest, tc.heaviest+1))
				time.Sleep(4 * time.Second)
				if n := f.outboxes[0].count(delivery.ToDead, delivery.ReasonOverweight); n != 1 { // above max_weight where no quota binds
					t.Errorf("jobs of weight %d and %d: %d dead letters, want 1", tc.heaviest, tc.heaviest+1, n)
				}
				if n := f.count("c"); tc.model && n != 1 {
					t.Errorf("%d jobs sent, want that of weight %d", n, tc.heaviest)
				}
				p, free := f.daemons[0], campaign("c", 1000)
				if got := p.horizon(&c) == p.horizon(&free); got != tc.asWithout {
					t.Errorf("horizon %d us, %d without a quota", p.horizon(&c), p.horizon(&free))
				}
				if got := lateBy(&c, 20_000, 1_000_000) == lateBy(&free, 20_000, 1_000_000); got != tc.asWithout {
					t.Errorf("slots may be %d us late, %d without a quota", lateBy(&c, 20_000, 1_000_000), lateBy(&free, 20_000, 1_000_000))
				}
			})
		})
	}
}
