package smev

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// adapter sends requests through the operator's adapter, which signs them, gives them to SMEV and collects the responses. It knows
// requests by an id of the client's, which is made of the job and always the same. The effect of a second send of one id is not
// documented. So the sink searches for a request before it sends it: any attempt may follow a crash.
type adapter struct {
	*Sink
	face face
}

func newAdapter(s *Sink) adapter {
	if s.config.Protocol == protocolSOAP {
		return adapter{s, envelopes{}}
	}
	return adapter{s, rest{}}
}

// What find looks for.
const (
	requestByRequest  = "GET_REQUEST_BY_REQUEST_CLIENTID"
	responseByRequest = "GET_RESPONSE_BY_REQUEST_CLIENTID"
)

// deliver sends the job's request, unless the adapter has it, or asks for the response to it.
func (a adapter) deliver(ctx context.Context, job *delivery.Job, shown *base.Exchange) (res delivery.Result) {
	client := clientID(job)
	if job.State != nil {
		res = a.poll(ctx, job, client, shown)
	} else {
		r, err := a.newRequest(job, client)
		if err != nil {
			return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
		}
		res = a.request(ctx, r, shown)
	}
	res.Provider = provider(res.Provider, client)
	return res
}

// request sends a request, unless the adapter has it.
func (a adapter) request(ctx context.Context, r soap.Request, shown *base.Exchange) delivery.Result {
	found, problem := a.find(ctx, r.ID, requestByRequest, shown)
	if problem == nil && len(found) == 0 {
		problem = a.send(ctx, r, shown)
	}
	if problem != nil {
		return *problem
	}
	return a.accepted(time.Now())
}

// provider adds the client's id.
func provider(p *delivery.Provider, client string) *delivery.Provider {
	if p == nil {
		p = &delivery.Provider{}
	}
	p.MessageID = client
	return p
}

// clientID returns the id of a job's request: a UUID of version 5.
func clientID(job *delivery.Job) string {
	who := identityOf(job)
	return uuid.NewSHA1(clientIDs, who.hash[:]).String()
}

// clientIDs is the namespace of the ids.
var clientIDs = uuid.MustParse("5d8f3c57-0e42-4b1d-9a6c-2f7184d3a910")

// find asks for messages by the id of a request. The problem is what is known if there is no answer.
func (a adapter) find(ctx context.Context, client, criteria string, shown *base.Exchange) (found []response, problem *delivery.Result) {
	isList := func(s said) bool { return s.listed }
	s, problem := a.ask(ctx, "find", a.face.find(a.config.ITSystem, client, criteria), maxFound, isList, shown)
	switch {
	case problem == nil:
		return s.found, nil
	case problem.Class == delivery.Permanent: // nothing in the question is the job's
		problem.Class = delivery.Misconfigured
	case problem.Class == delivery.Temporary: // nor can a question do harm
		problem.Detail = strings.TrimSuffix(problem.Detail, mayHaveArrived)
	}
	return nil, problem
}

// maxFound bounds an answer of find, which holds a response with its attachments' headers, in bytes.
const maxFound = 32 << 20

// send sends a request. The problem is what is known if there is no answer.
func (a adapter) send(ctx context.Context, r soap.Request, shown *base.Exchange) (problem *delivery.Result) {
	_, problem = a.ask(ctx, "send", a.face.send(r), maxAnswer, func(s said) bool { return s.messageID != "" }, shown)
	return problem
}

// ask calls a method, and reads at most so many bytes of its answer, which is to be valid. The problem is what is known otherwise.
func (a adapter) ask(
	ctx context.Context, method string, r httpcall.Request, most int64, valid func(said) bool, shown *base.Exchange,
) (s said, problem *delivery.Result) {
	r.Most, r.Shown = most, shown
	p := a.Now()
	answer, problem := p.Post(ctx, r)
	if problem != nil {
		return s, problem
	}
	s = a.face.read(answer)
	if s.fault == (soap.Fault{}) && slices.Contains([]int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge}, answer.Status) {
		s.fault.Name = soap.ValidationFault
	}
	res := judge(answer, s.fault, p.Where())
	if res.Class == delivery.Delivered {
		if valid(s) {
			return s, nil
		}
		res = foreign(answer, method, p.Where())
	}
	return s, &res
}

// check asks for a request that does not exist.
func (a adapter) check(ctx context.Context) error {
	_, problem := a.find(ctx, "00000000-0000-5000-8000-000000000000", requestByRequest, nil)
	switch {
	case problem == nil:
		return nil
	case problem.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", problem.Detail)
	case problem.Provider != nil && problem.Provider.Code == soap.ValidationFault:
		return fmt.Errorf("it_system: %s", problem.Detail)
	}
	return fmt.Errorf("url: %s", problem.Detail)
}

// stepResponse is the step of a request that the adapter has: its response is waited for. It needs no slot, and what is known
// between two polls is in the job's record.
const stepResponse = "response"

// accepted returns the result for a request that the adapter has.
func (a adapter) accepted(now time.Time) delivery.Result {
	if a.config.Wait == waitAccepted {
		return delivery.Result{Class: delivery.Delivered}
	}
	return pending(a.config.Poll.Every, &delivery.State{Step: stepResponse, Began: now}, "the adapter has the request; its response is waited for")
}

// pending is the result of a job whose response is asked for after a while. A request is looked for before it is sent again.
func pending(after time.Duration, state *delivery.State, detail string) delivery.Result {
	return delivery.Result{Class: delivery.Pending, RetryAfter: after, State: state, Repeatable: true, Detail: detail}
}

// poll asks for the response, and is done once there is a final one.
func (a adapter) poll(ctx context.Context, job *delivery.Job, client string, shown *base.Exchange) delivery.Result {
	found, problem := a.find(ctx, client, responseByRequest, shown)
	if problem != nil {
		return *problem
	}
	for _, m := range found {
		if m.Kind == soap.Status || m.Kind == "" {
			continue
		}
		if err := a.keep(ctx, job, client, m); err != nil { // nothing is wrong with the destination, nor with the job
			return pending(a.config.Poll.Every, job.State, "the response cannot be written to the topic "+a.config.Responses+": "+err.Error())
		}
		return a.result(m.Kind, m.Code)
	}
	return a.waits(job.State, time.Now())
}

// waits returns the result for a request without a final response so far.
func (a adapter) waits(s *delivery.State, now time.Time) delivery.Result {
	left := a.config.Deadline - now.Sub(s.Began)
	if left <= 0 {
		return delivery.Result{
			Class: delivery.Permanent, Reason: delivery.ReasonDeadline, Detail: "no response within " + a.config.Deadline.String() + " of the request",
		}
	}
	next := *s
	next.Waits++
	wait := retry.Backoff{Initial: a.config.Poll.Every, Max: a.config.Poll.Max}.Delay(int(next.Waits) + 1)
	return pending(min(wait, max(time.Second, left)), &next, "no response after "+strconv.Itoa(int(next.Waits))+" polls")
}

// result returns what a final response means for the job.
func (a adapter) result(kind soap.Kind, code string) delivery.Result {
	res := delivery.Result{Class: delivery.Delivered, Provider: &delivery.Provider{Code: code}}
	switch kind {
	case soap.Rejected:
		res.Class, res.Detail = delivery.Rejected, "the supplier of data rejected the request: "+cmp.Or(code, "no code")
	case soap.Refused:
		res.Class, res.Detail = delivery.Permanent, "refused by SMEV or the adapter, after it was taken: "+cmp.Or(code, "no code")
	}
	return res
}

// keep writes a final response to the topic; after an error it is asked for once more. The sink's timeout is for the destination: a slow Kafka
// does not have the destination asked again.
func (a adapter) keep(ctx context.Context, job *delivery.Job, client string, r response) error {
	if a.Writer == nil {
		return nil
	}
	r.Original = cmp.Or(r.Original, client)
	record := r.record()
	record.Headers = append(record.Headers,
		header(headerClient, client), header(delivery.HeaderJobID, job.ID), header(delivery.HeaderCampaign, job.Campaign))
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
	return err
}
