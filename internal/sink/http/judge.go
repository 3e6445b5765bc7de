package http

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/rule"
)

// resultOf returns the result for an answer by the sink's own rules, or by its status where they say nothing of it. Where they
// look at the body, the call has not ended before all of it is there: the status alone does not say what became of the job.
func (c *client) resultOf(a httpcall.Answer, see func(*rule.Answer)) delivery.Result {
	now := time.Now()
	if c.rules == nil {
		return c.classify(a, now)
	}
	switch {
	case a.Long:
		a.Body = nil
	case c.rules.NeedsBody() && !a.Whole:
		return delivery.Result{
			Class: delivery.Temporary, By: delivery.ByNobody, Status: a.Status,
			Detail: c.statusDetail(a) + "; the body, which the rules look at, did not come",
		}
	}
	answer := c.rules.NewAnswer(a.Status, a.Header, a.Body)
	if see != nil {
		see(answer)
	}
	res := c.classify(a, now)
	if v, ok := c.rules.Judge(answer); ok {
		res = c.apply(v, a, now)
	}
	if res.Class == delivery.Temporary || res.Class == delivery.Throttled {
		if d := httpcall.ParseWait(c.rules.RetryAfter(answer), now); d > 0 {
			res.RetryAfter = d
		}
	}
	if p := c.rules.Provider(answer); p != nil {
		if res.Provider = p; p.Code != "" && res.Class != delivery.Delivered {
			res.Detail += ", code " + p.Code
		}
	}
	return res
}

// apply returns the result for an answer that a rule has classified.
func (c *client) apply(v rule.Verdict, a httpcall.Answer, now time.Time) delivery.Result {
	res := delivery.Result{Class: v.Class, Scope: v.Scope, Status: a.Status}
	switch v.Class {
	case delivery.Delivered:
		return res
	case delivery.Throttled:
		res.RetryAfter = a.Wait(now)
	case delivery.Temporary:
		if res.By = a.By(); v.ByRule {
			res.By = delivery.ByDestination
		}
		res.RetryAfter = a.RetryAfter(now)
	}
	res.Detail = c.statusDetail(a)
	if v.ByRule {
		res.Detail += ", " + v.Class.String() + " by a rule"
	}
	return res
}
