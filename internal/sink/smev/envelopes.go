package smev

import (
	"context"
	"net/http"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// envelopes calls the adapter with SOAP: its methods are told apart by the action, and all have one URL.
type envelopes struct{ *Sink }

func (f envelopes) find(ctx context.Context, client, criteria string, shown *base.Exchange) (found []response, problem *delivery.Result) {
	answer, said, bare, problem := f.post(ctx, soap.AdapterFind(f.config.ITSystem, client, criteria), maxFound, shown)
	if problem != nil {
		return nil, problem
	}
	if said.Root != "QueryResultList" || !answer.Whole || !said.Whole {
		return nil, foreign(answer, "find", f.Now().Where())
	}
	for _, m := range said.Found {
		next := response{Message: m.Message(), body: m.Document, contentType: "text/xml; charset=utf-8"}
		if !bare { // other parts belong to it
			next.body, next.contentType = answer.Body, answer.Header.Get("Content-Type")
		}
		found = append(found, next)
	}
	return found, nil
}

func (f envelopes) send(ctx context.Context, r soap.AdapterRequest, shown *base.Exchange) (problem *delivery.Result) {
	answer, said, _, problem := f.post(ctx, soap.AdapterSend(r), maxAnswer, shown)
	if problem == nil && (said.Root != "MessageResult" || said.MessageID == "") {
		problem = foreign(answer, "send", f.Now().Where())
	}
	return problem
}

// post makes a call. bare reports whether the answer is an envelope and nothing else. The problem is the result if the adapter does not
// answer with success. A fault counts with any status, since some gateways set it to 200.
func (f envelopes) post(ctx context.Context, c soap.Call, most int64, shown *base.Exchange) (
	answer httpcall.Answer, said soap.AdapterAnswer, bare bool, problem *delivery.Result,
) {
	p := f.Now()
	answer, problem = p.Post(ctx, httpcall.Request{
		Body: c.Envelope, Most: most, Shown: shown,
		Header: http.Header{"Content-Type": {"text/xml; charset=utf-8"}, "SOAPAction": {`"` + c.Action + `"`}},
	})
	if problem != nil {
		return answer, said, false, problem
	}
	text, bare, err := soap.XML(answer.Header.Get("Content-Type"), answer.Body)
	if err == nil {
		said, _ = soap.ReadAdapter(text) // an answer without a root is judged by its status
	}
	fault := said.Fault
	if said.Root == "Fault" && fault == (soap.Fault{}) {
		fault.Code = "SOAP fault"
	}
	return answer, said, bare, refused(answer, fault, p.Where())
}
