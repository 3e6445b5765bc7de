package pacer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// refusing has the sink refuse every job of the campaign for good.
func refusing(campaign string) func(int, *delivery.Job) delivery.Result {
	refused := delivery.Result{Class: delivery.Permanent, Status: 400, Detail: "HTTP 400"}
	return answering(refused, func(j *delivery.Job) bool { return j.Campaign == campaign })
}

// A campaign whose jobs are all refused is held after fifty; one a second is tried, none of them the same one, and none is
// lost. Others of the sink do not notice. When a job is taken the campaign goes on by itself.
func TestRefusalsInARowHoldACampaign(t *testing.T) {
	var log lines
	one(t, newBook(campaign("c", 200), campaign("good", 50)), log.logged, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(refusing("c"))
		lane := f.offered(t, delivery.FromLane, "c", 300)
		f.share(t, "good", 450)
		time.Sleep(10 * time.Second)
		exactly(t, f.dead(delivery.ReasonRefused), heldRefusals, "dead letters")
		within(t, f.count("c"), heldRefusals+8, heldRefusals+12, "tried in 10 s: %d and one a second", heldRefusals)
		exactly(t, f.count("good"), 450, "good: sent")
		tried := map[string]bool{}
		for _, a := range sorted(f.receiver.history(), "c") {
			if tried[a.id] {
				t.Errorf("%s was tried twice", a.id)
			}
			tried[a.id] = true
		}
		log.says(t, "level=ERROR", 1)
		held := f.troubles(t)
		if len(held) != 1 || held[0].Campaign != "c" || !held[0].Refused || time.Since(held[0].Since).Round(time.Second) != 10*time.Second {
			t.Errorf("%+v", held)
		}
		f.receiver.setAnswer(nil)
		time.Sleep(4 * time.Second)
		waiting := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonRetry)
		if n := lane.count(delivery.OutcomeDelivered); n+waiting+heldRefusals != 300 || waiting > 15 {
			t.Errorf("%d delivered and %d in timers of 250", n, waiting)
		}
		exactly(t, f.dead(delivery.ReasonRefused), heldRefusals, "dead letters")
		exactly(t, len(f.troubles(t)), 0, "troubles")
	})
}

// While a campaign is held for refusals, none of its jobs is given up for failures either.
func TestAHeldCampaignGivesNoJobUp(t *testing.T) {
	one(t, newBook(campaign("c", 200)), func(o *Options) { o.Retry.MaxAttempts = 1 }, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(refusing("c"))
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 200))
		time.Sleep(2 * time.Second)
		f.receiver.setAnswer(failing("c"))
		time.Sleep(5 * time.Second)
		exactly(t, f.dead(delivery.ReasonAttemptsExhausted), 0, "dead letters of a campaign that is held")
	})
}

// Any change of the campaign's row by people ends the hold at once; a step of its schedule does not.
func TestAChangeEndsTheHold(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*delivery.Campaign)
		want   int // dead letters
	}{
		"a new revision": {func(*delivery.Campaign) {}, 2 * heldRefusals},
		"another rate":   {func(c *delivery.Campaign) { c.Rate = delivery.PerSecond(150) }, 2 * heldRefusals},
		"a rate of a daemon's that spreads what is left": {func(c *delivery.Campaign) {
			c.FinishBy, c.FinishRate, c.Repaced = time.Now().Add(time.Hour), delivery.PerSecond(150), 1
		}, heldRefusals},
		"none": {nil, heldRefusals},
	} {
		t.Run(name, func(t *testing.T) {
			c := campaign("c", 200)
			c.Ramp = &delivery.Ramp{Start: 100_000_000, Add: 1_000_000, Per: time.Second, Every: time.Second}
			one(t, newBook(), nil, func(t *testing.T, f *fleet) {
				c.Ramp.Since = time.Now()
				f.book.set(c)
				f.receiver.setAnswer(refusing("c"))
				f.share(t, "c", 180)
				time.Sleep(5 * time.Second)
				if tc.change != nil {
					next := c
					tc.change(&next)
					f.book.set(next)
				}
				time.Sleep(2 * time.Second)
				exactly(t, f.dead(delivery.ReasonRefused), tc.want, "dead letters")
			})
		})
	}
}

// A campaign is held from the fiftieth refusal after its last success until the next success.
func TestWhatHoldsForRefusals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var c breaker
		inRow, now := 0, int64(0)
		for range rapid.IntRange(1, 300).Draw(rt, "answers") {
			now += rapid.Int64Range(0, 400*millisecond).Draw(rt, "later")
			switch rapid.IntRange(0, 40).Draw(rt, "answer") {
			case 0:
				c.succeeded(now)
				inRow = 0
			case 1:
				c.fail(failure{job: &delivery.Job{}, cause: delivery.GateFailing}, now)
				c.trip(delivery.GateFailing, probeEvery, now)
			case 2:
				if was := c.forgive(now); was != (inRow >= heldRefusals) {
					rt.Fatalf("forgiven after %d: was held %t", inRow, was)
				}
				inRow = 0
			default:
				inRow++
				if first, _ := c.refused(heldRefusals, now); first != (inRow == heldRefusals) {
					rt.Fatalf("refusal %d in a row: the first that holds: %t", inRow, first)
				}
				if c.isHeld() {
					c.trip(delivery.GateRefused, probeEvery, now)
				} else if c.tripped || c.failures != 0 {
					rt.Fatalf("a refusal leaves %+v", c)
				}
			}
			if c.isHeld() != (inRow >= heldRefusals) || c.isHeld() && !c.tripped {
				rt.Fatalf("after %d in a row: %+v", inRow, c)
			}
		}
	})
}
