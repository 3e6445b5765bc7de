package simulate

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	second = int64(time.Second / time.Microsecond)
	// epoch is the store time of the start, microseconds since 1970: a whole minute, where calendar windows begin.
	epoch = int64(1_800_000_000) * second
	// before is when a timeline is opened that shall have been idle for long when the jobs come.
	before = epoch - 2*second

	campaignID = "simulated"
	node       = "simulator"
)

// engine is pacer's reference model with one campaign. It is asked with a horizon of 0 and no tolerance: what it grants
// goes at once, and no window is widened.
type engine struct {
	store *model.Store
	ask   delivery.Ask
	batch int64 // at most this many jobs in one take
	scale int64 // how many times as fast store time passes as simulated time
}

func newEngine(c *delivery.Campaign) *engine {
	c.ID, c.PriorityWeight = campaignID, 1
	return &engine{store: model.NewStore(), ask: delivery.Ask{Campaign: c}, batch: delivery.MaxGrant, scale: 1}
}

// idled opens the campaign's timeline without taking anything, so that it has its whole credit when the jobs come.
func (e *engine) idled() *engine {
	e.store.Take(before, node, []delivery.Ask{e.ask})
	return e
}

func (e *engine) take(now, want int64) (units, next int64) {
	e.ask.Want = min(want, e.batch)
	g := e.store.Take(epoch+now*e.scale, node, []delivery.Ask{e.ask}).Items[0]
	// Asked again at the same instant, it says when the next ones can go.
	return g.Units, max(now, (g.NextAt-epoch+e.scale-1)/e.scale)
}

// leakyBucket is the campaign's timeline without a burst, asked job by job: one job per slot, and time that passed
// unused is gone. Where slots are not whole microseconds apart, each waits for the next one.
func leakyBucket(rate int64) limiter {
	e := newEngine(&delivery.Campaign{Rate: delivery.PerSecond(rate)})
	e.batch = 1
	return e
}

// tokenBucket is the timeline with a burst. The burst is what may go besides the job that is due, so a bucket that holds
// a second's tokens has a burst of one less.
func tokenBucket(rate int64) *engine {
	return newEngine(&delivery.Campaign{Rate: delivery.PerSecond(rate), Burst: rate - 1})
}

// emptyTokenBucket has a timeline that begins with the jobs: it has no credit yet.
func emptyTokenBucket(rate int64) limiter { return tokenBucket(rate) }

// fullTokenBucket has a timeline that has been idle.
func fullTokenBucket(rate int64) limiter { return tokenBucket(rate).idled() }

// windowed is a quota of one window alone: the campaign's timeline has a rate and a burst that never bind.
func windowed(w delivery.Window) *engine {
	return newEngine(&delivery.Campaign{
		Rate: delivery.PerSecond(second), Burst: delivery.MaxGrant,
		Quotas: []*delivery.Quota{{ID: "limit", Windows: []delivery.Window{w}}},
	}).idled()
}

// fixedWindow counts the jobs of each second of the clock. The shortest calendar window of the engine is a minute, so a
// second of the simulation is a minute of the store's time: sixty times as fast, and the same in every other way.
func fixedWindow(rate int64) limiter {
	e := windowed(delivery.Window{Span: time.Minute, Limit: rate, Algorithm: delivery.AlgorithmFixed, Anchor: "minute"})
	e.scale = int64(time.Minute / time.Second)
	return e
}

// slidingLog remembers when every job went.
func slidingLog(rate int64) limiter {
	return windowed(delivery.Window{Span: time.Second, Limit: rate, Algorithm: delivery.AlgorithmLog})
}

// slidingRing is the window that pacer gives to quotas unless told otherwise.
func slidingRing(rate int64) limiter {
	return windowed(delivery.Window{Span: time.Second, Limit: rate, Algorithm: delivery.AlgorithmSliding})
}
