package smev

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
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

// face is one of the two ways to call the adapter.
type face interface {
	// find asks for messages by the id of a request, and send sends one.
	find(system, client, criteria string) httpcall.Request
	send(r soap.AdapterRequest) httpcall.Request
	read(a httpcall.Answer) said
}

// said is what an answer of the adapter says.
type said struct {
	messageID string // of the request that it has taken; "" for none
	listed    bool   // it is a list of messages, and was read whole
	found     []response
	fault     soap.Fault
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
		problem = a.send(ctx, soap.AdapterRequest{
			ITSystem: a.config.ITSystem, ClientID: client, NodeID: a.config.NodeID, EOL: job.ExpiresAt, Test: a.config.TestMessage, Content: content, Files: files,
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
	s, answer, problem := a.ask(ctx, a.face.find(a.config.ITSystem, client, criteria), maxFound, shown)
	switch {
	case problem == nil && s.listed:
		return s.found, nil
	case problem == nil:
		problem = foreign(answer, "find", a.Now().Where())
	}
	switch problem.Class {
	case delivery.Permanent: // nothing in the question is the job's
		problem.Class = delivery.Misconfigured
	case delivery.Temporary: // nor can a question do harm
		problem.Detail = strings.TrimSuffix(problem.Detail, mayHaveArrived)
	}
	return nil, problem
}

// send sends a request. The problem is what is known if there is no answer.
func (a adapter) send(ctx context.Context, r soap.AdapterRequest, shown *base.Exchange) (problem *delivery.Result) {
	s, answer, problem := a.ask(ctx, a.face.send(r), maxAnswer, shown)
	if problem == nil && s.messageID == "" {
		problem = foreign(answer, "send", a.Now().Where())
	}
	return problem
}

// ask makes a call, and reads at most so many bytes of its answer. The problem is what is known without an answer, or the answer refuses.
func (a adapter) ask(
	ctx context.Context, r httpcall.Request, most int64, shown *base.Exchange,
) (s said, answer httpcall.Answer, problem *delivery.Result) {
	r.Most, r.Shown = most, shown
	p := a.Now()
	if answer, problem = p.Post(ctx, r); problem != nil {
		return s, answer, problem
	}
	s = a.face.read(answer)
	return s, answer, refused(answer, s.fault, p.Where())
}

const (
	maxFound       = 32 << 20 // bytes of an answer of find, which holds a response with its attachments' headers
	mayHaveArrived = "; the request may have arrived"
)

// refused returns what an answer means by its status and by the fault in it; nil for success. The text of a fault is not
// repeated: it may quote the payload.
func refused(answer httpcall.Answer, fault soap.Fault, where string) *delivery.Result {
	res := answer.ByStatus(time.Now())
	name := fault.Name
	if res.Class == delivery.Delivered && fault == (soap.Fault{}) {
		return nil
	}
	switch status := answer.Status; {
	case name == soap.ValidationFault:
		res.Class = delivery.Permanent
	case res.Class == delivery.Throttled:
	case name == soap.SystemFault: // the adapter's schema asks to try again without end: the fault is its own
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
	case fault != (soap.Fault{}) && (status < 300 || status >= 500):
		name = cmp.Or(name, fault.Code, "SOAP fault")
		res.Class, res.By = delivery.Temporary, delivery.ByDestination
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusRequestEntityTooLarge:
		res.Class, name = delivery.Permanent, soap.ValidationFault
	}
	if res.Class == delivery.Permanent {
		res.RetryAfter = 0
	}
	res.Detail = "HTTP " + strconv.Itoa(answer.Status) + " from " + where
	if name != "" {
		res.Provider = &delivery.Provider{Code: name}
		if fault.Code != "" && fault.Code != name {
			name += " (" + fault.Code + ")"
		}
		res.Detail = name + ", " + res.Detail
	}
	return &res
}

// foreign is the result for an answer that is not the adapter's own, such as a proxy's page.
func foreign(answer httpcall.Answer, method, where string) *delivery.Result {
	return &delivery.Result{
		Class: delivery.Temporary, By: delivery.ByNobody, Status: answer.Status,
		Detail: "no answer of an adapter to " + method + ", from " + where + mayHaveArrived,
	}
}

// check asks for a request that does not exist.
func (a adapter) check(ctx context.Context) error {
	_, problem := a.find(ctx, "00000000-0000-5000-8000-000000000000", requestByRequest, nil)
	switch {
	case problem == nil:
		return nil
	case problem.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", problem.Detail)
	case problem.Provider != nil && problem.Provider.Code == "ValidationFault":
		return fmt.Errorf("it_system: %s", problem.Detail)
	}
	return fmt.Errorf("url: %s", problem.Detail)
}
