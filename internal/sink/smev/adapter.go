package smev

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pacer/pacer/internal/delivery"
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

// deliver sends the job's request, unless the adapter has it.
func (a adapter) deliver(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	client := clientID(job)
	if job.State != nil {
		return a.poll(ctx, job, client, shown)
	}
	content, err := soap.Content(job.Payload)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: "payload: " + err.Error()}
	}
	files, err := attachmentsOf(a.Sink, job, fileProblem)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	found, problem := a.find(ctx, client, requestByRequest, shown)
	if problem == nil && len(found) == 0 {
		problem = a.send(ctx, soap.Request{
			ID: client, ITSystem: a.config.ITSystem, NodeID: a.config.NodeID, EOL: job.ExpiresAt, Test: a.config.TestMessage, Content: content, Files: files,
		}, shown)
	}
	if problem != nil {
		problem.Provider = provider(problem.Provider, client)
		return *problem
	}
	return a.accepted(client, time.Now())
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
