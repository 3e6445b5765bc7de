package http

import (
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/rule"
)

// resultOf returns the result for an answer by the sink's own rules, or by its status where they say nothing of it. Where they
// look at the body, the call has not ended before all of it is there: the status alone does not say what became of the job.
func (c *client) resultOf(ctx context.Context, resp *http.Response, t *trip) delivery.Result {
	defer finish(resp, t.cancel)
	var body []byte
	if c.rules.NeedsBody() {
		var err error
		if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBody+1)); err != nil {
			t.cancel() // so that nothing more is read
			return c.cutOff(ctx, resp)
		}
		if len(body) > maxAnswerBody {
			body = nil
		}
	}
	now := time.Now()
	answer := c.rules.NewAnswer(resp.StatusCode, resp.Header, body)
	if t.extra != nil && t.extra.see != nil {
		t.extra.see(answer)
	}
	res := c.classify(resp, now)
	if v, ok := c.rules.Judge(answer); ok {
		res = c.apply(v, resp, now)
	}
	if res.Class == delivery.Temporary || res.Class == delivery.Throttled {
		if d, ok := waitAsked(c.rules.RetryAfter(answer), now); ok {
			res.RetryAfter = d
		}
	}
	if p := c.rules.Provider(answer); p != nil {
		p.Code, p.MessageID = c.scrub(p.Code), c.scrub(p.MessageID)
		if res.Provider = p; p.Code != "" && res.Class != delivery.Delivered {
			res.Detail += ", code " + p.Code
		}
	}
	return res
}

// cutOff returns the result for an answer whose body did not come to its end, though the rules look at it.
func (c *client) cutOff(ctx context.Context, resp *http.Response) delivery.Result {
	if ctx.Err() != nil {
		return delivery.Result{Class: delivery.Interrupted, Status: resp.StatusCode, Detail: "given up by pacer before " + c.where + " had answered"}
	}
	return delivery.Result{
		Class: delivery.Temporary, By: delivery.ByNobody, Status: resp.StatusCode,
		Detail: c.scrub(c.statusDetail(resp) + "; the body, which the rules look at, did not come"),
	}
}

// apply returns the result for an answer of which a rule says what it means.
func (c *client) apply(v rule.Verdict, resp *http.Response, now time.Time) delivery.Result {
	res := delivery.Result{Class: v.Class, Scope: v.Scope, Status: resp.StatusCode}
	switch v.Class {
	case delivery.Delivered:
		return res
	case delivery.Throttled:
		res.RetryAfter = waitOf(resp.Header, now)
	case delivery.Temporary:
		if res.By = answerer(resp.StatusCode); v.ByRule {
			res.By = delivery.ByDestination
		}
		res.RetryAfter, _ = retryAfter(resp.Header, now)
	}
	res.Detail = c.statusDetail(resp)
	if v.ByRule {
		res.Detail += ", " + v.Class.String() + " by a rule"
	}
	res.Detail = c.scrub(res.Detail)
	return res
}

// waitAsked parses a wait that a rule has taken from an answer: seconds, a time as seconds since 1970, or a date.
func waitAsked(v string, now time.Time) (d time.Duration, ok bool) {
	if d, ok = reset(v, now); ok || v == "" {
		return d, ok
	}
	if at, err := http.ParseTime(v); err == nil {
		return bounded(at.Sub(now)), true
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return bounded(time.Duration(min(math.Ceil(n), maxRetryAfter.Seconds())) * time.Second), true
}
