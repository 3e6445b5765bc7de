package smev

import (
	"net/http"

	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// envelopes calls the adapter with SOAP: its methods are told apart by the action, and all have one URL.
type envelopes struct{}

func (envelopes) find(system, client, criteria string) httpcall.Request {
	return inSOAP(soap.AdapterFind(system, client, criteria))
}

func (envelopes) send(r soap.AdapterRequest) httpcall.Request { return inSOAP(soap.AdapterSend(r)) }

// inSOAP returns the request of a call.
func inSOAP(c soap.Call) httpcall.Request {
	return httpcall.Request{Body: c.Envelope, Header: http.Header{"Content-Type": {"text/xml; charset=utf-8"}, "SOAPAction": {`"` + c.Action + `"`}}}
}

// read reads an answer. A fault counts with any status, since some gateways set it to 200. An answer without a root is judged by its status.
func (envelopes) read(a httpcall.Answer) (s said) {
	text, bare, err := soap.XML(a.Header.Get("Content-Type"), a.Body)
	if err != nil {
		return s
	}
	answer, _ := soap.ReadAdapter(text)
	if s.fault = answer.Fault; answer.Root == "Fault" && s.fault == (soap.Fault{}) {
		s.fault.Code = "SOAP fault"
	}
	if answer.Root == "MessageResult" {
		s.messageID = answer.MessageID
	}
	s.listed = answer.Root == "QueryResultList" && a.Whole && answer.Whole
	for _, m := range answer.Found {
		next := response{Message: m.Message(), body: m.Document, contentType: "text/xml; charset=utf-8"}
		if !bare { // other parts belong to it
			next.body, next.contentType = a.Body, a.Header.Get("Content-Type")
		}
		s.found = append(s.found, next)
	}
	return s
}
