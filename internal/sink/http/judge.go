package http

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/rule"
)

// resultOf returns the result for an answer by the sink's own rules, or by its status where they say nothing of it. Where they
// look at the body, the call has not ended before all of it is there: the status alone does not say what became of the job.
// It also returns the answer as rules see it, nil if none does.
func (c *Client) resultOf(a httpcall.Answer, vars map[string]any) (res delivery.Result, seen *rule.Answer) {
	now := time.Now()
	if c.rules == nil {
		return c.classify(a, now), nil
	}
	switch {
	case a.Long:
		a.Body = nil
	case c.rules.NeedsBody() && !a.Whole:
		return delivery.Result{
			Class: delivery.Temporary, By: delivery.ByNobody, Status: a.Status,
			Detail: c.statusDetail(a) + "; the body, which the rules look at, did not come",
		}, nil
	}
	seen = c.rules.NewAnswer(a.Status, a.Header, a.Body)
	seen.Vars = vars
	if v, ok := c.rules.Judge(seen); ok {
		res = c.apply(v, a, now)
	} else {
		res = c.classify(a, now)
	}
	if res.Class == delivery.Temporary || res.Class == delivery.Throttled {
		if d := httpcall.ParseWait(c.rules.RetryAfter(seen), now); d > 0 {
			res.RetryAfter = d
		}
	}
	if p := c.rules.Provider(seen); p != nil {
		if res.Provider = p; p.Code != "" && res.Class != delivery.Delivered {
			res.Detail += ", code " + p.Code
		}
	}
	return res, seen
}

// apply returns the result for an answer that a rule has classified.
func (c *Client) apply(v rule.Verdict, a httpcall.Answer, now time.Time) delivery.Result {
	res := a.As(v.Class, now)
	if res.Scope = v.Scope; v.Class == delivery.Delivered {
		return res
	}
	res.Detail = c.statusDetail(a)
	if v.ByRule {
		res.Detail += ", " + v.Class.String() + " by a rule"
	}
	if v.ByRule && v.Class == delivery.Temporary {
		res.By = delivery.ByDestination
	}
	return res
}
