package smev

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// stepResponse is the step of a request that the adapter has: its response is waited for. It needs no slot, and what is known
// between two polls is in the job's record.
const stepResponse = "response"

// accepted returns the result for a request that the adapter has.
func (a adapter) accepted(client string, now time.Time) delivery.Result {
	if a.config.Wait == waitAccepted {
		return delivery.Result{Class: delivery.Delivered, Provider: &delivery.Provider{MessageID: client}}
	}
	return delivery.Result{
		Class: delivery.Pending, RetryAfter: a.config.Poll.Every, Provider: &delivery.Provider{MessageID: client},
		State: &delivery.State{Step: stepResponse, Began: now}, Repeatable: true, // the request is looked for before it is sent again
		Detail: "the adapter has the request; its response is waited for",
	}
}

// poll asks for the response, and is done once there is a final one.
func (a adapter) poll(ctx context.Context, job *delivery.Job, client string, shown *base.Exchange) delivery.Result {
	found, problem := a.find(ctx, client, responseByRequest, shown)
	if problem != nil {
		problem.Provider = provider(problem.Provider, client)
		return *problem
	}
	for _, m := range found {
		if m.Kind == soap.Status || m.Kind == "" {
			continue
		}
		if problem := a.keep(ctx, job, client, m); problem != nil {
			return *problem
		}
		return a.result(m.Kind, m.Code, client)
	}
	return a.waits(job, client, time.Now())
}

// waits returns the result for a request without a final response so far.
func (a adapter) waits(job *delivery.Job, client string, now time.Time) delivery.Result {
	s := *job.State
	if now.Sub(s.Began) >= a.config.Deadline {
		return delivery.Result{
			Class: delivery.Permanent, Reason: delivery.ReasonDeadline, Provider: &delivery.Provider{MessageID: client},
			Detail: "no response within " + a.config.Deadline.String() + " of the request",
		}
	}
	s.Waits++
	wait := retry.Backoff{Initial: a.config.Poll.Every, Max: a.config.Poll.Max}.Delay(int(s.Waits) + 1)
	return delivery.Result{
		Class: delivery.Pending, RetryAfter: min(wait, max(time.Second, a.config.Deadline-now.Sub(s.Began))), State: &s, Repeatable: true, Provider: &delivery.Provider{MessageID: client},
		Detail: "no response after " + strconv.Itoa(int(s.Waits)) + " polls",
	}
}

// result returns what a final response means for the job.
func (a adapter) result(kind soap.Kind, code, client string) delivery.Result {
	res := delivery.Result{Class: delivery.Delivered, Provider: &delivery.Provider{Code: code, MessageID: client}}
	switch kind {
	case soap.Rejected:
		res.Class, res.Detail = delivery.Rejected, "the supplier of data rejected the request: "+cmp.Or(code, "no code")
	case soap.Refused:
		res.Class, res.Detail = delivery.Permanent, "refused by SMEV or the adapter, after it was taken: "+cmp.Or(code, "no code")
	}
	return res
}

// keep writes a final response to the topic. The problem is what is known if that failed: it is asked for once more. The
// sink's timeout is for the destination: a slow Kafka does not have the destination asked again.
func (a adapter) keep(ctx context.Context, job *delivery.Job, client string, r response) (problem *delivery.Result) {
	if a.Writer == nil {
		return nil
	}
	r.Original = cmp.Or(r.Original, client)
	record := r.record()
	record.Headers = append(record.Headers,
		delivery.Header{Key: headerClient, Value: []byte(client)}, delivery.Header{Key: delivery.HeaderJobID, Value: []byte(job.ID)},
		delivery.Header{Key: delivery.HeaderCampaign, Value: []byte(job.Campaign)})
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	tooLarge, err := a.Writer.Write(work, a.config.Responses, record)
	if err == nil {
		a.metrics.collected.WithLabelValues(string(r.Kind)).Inc()
		return nil
	}
	a.metrics.failed.WithLabelValues(stepStore).Inc()
	if tooLarge {
		a.Logger.Error("a response of SMEV is larger than its topic takes; it is asked for again: raise max.message.bytes",
			"topic", a.config.Responses, "campaign", job.Campaign, "job", job.ID, "bytes", len(r.body), "error", err)
	}
	return &delivery.Result{ // nothing is wrong with the destination, nor with the job
		Class: delivery.Pending, RetryAfter: a.config.Poll.Every, State: job.State, Repeatable: true, Provider: &delivery.Provider{MessageID: client},
		Detail: "the response cannot be written to the topic " + a.config.Responses + ": " + err.Error(),
	}
}
