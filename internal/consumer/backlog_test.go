package consumer

import (
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// waiting is what a consumer says of a campaign in its lanes.
func (c *running) waiting(campaign string) (n int64) {
	for _, lane := range c.Backlog().Lanes {
		for _, w := range lane.Waiting {
			if w.Campaign == delivery.CampaignHash(campaign) {
				n += w.Jobs
			}
		}
	}
	return n
}

// The backlog of a lane is counted exactly, whether its campaign stands still or sends. The next generation goes on from that count
// before it reads anything again.
func TestBacklogOfLanes(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs())
		r.create(2, r.opt.LaneTopic)
		r.produceIDs(r.opt.LaneTopic, 0, "still", numbered("s", 0, 300))
		r.produceIDs(r.opt.LaneTopic, 1, "still", numbered("t", 0, 50))
		r.produceIDs(r.opt.LaneTopic, 0, "busy", numbered("b", 0, 200))
		first := newQueues(5, "still")
		c := r.start(first.fake, func(o *Options) { o.Handler = first })
		r.eventually("all counted", func() bool { return c.waiting("still") == 350 && c.waiting("busy") == 200 })
		r.eventually("ten sent", func() bool { first.send(); return first.sentOf("busy") >= 10 })
		left := 200 - int64(first.sentOf("busy"))
		if got := c.waiting("busy"); got != left {
			t.Errorf("%d are counted, %d wait", got, left)
		}
		c.stop()
		if got := c.waiting("still"); got != 350 {
			t.Errorf("%d between two generations, want the last 350", got)
		}
		second := newQueues(0)
		d := r.start(second.fake, func(o *Options) { o.Handler = second })
		r.eventually("the second has them", func() bool { return len(d.Backlog().Lanes) == 2 })
		if got := []int64{d.waiting("still"), d.waiting("busy")}; got[0] != 350 || got[1] != left {
			t.Errorf("%v after the restart, want 350 and %d", got, left)
		}
		d.stop()
	})
}
