package smev

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// face is one of the two ways to call the adapter.
type face interface {
	// find asks for messages by the id of a request, and send sends one.
	find(system, client, criteria string) httpcall.Request
	send(r soap.Request) httpcall.Request
	read(a httpcall.Answer) said
}

// said is what an answer of the adapter says.
type said struct {
	messageID string // of the request that it has taken; "" for none
	listed    bool   // it is a list of messages, and was read whole
	found     []response
	fault     soap.Fault
}

// rest calls the adapter with JSON: its methods are below the URL.
type rest struct{}

// object is an object in JSON.
type object = map[string]any

func (rest) find(system, client, criteria string) httpcall.Request {
	return inJSON("find", object{"itSystem": system, "specificQuery": object{
		"messageClientIdCriteria": object{"clientId": client, "clientIdCriteria": criteria},
	}})
}

func (rest) send(r soap.Request) httpcall.Request {
	metadata, content := object{"clientId": r.ID}, object{"messagePrimaryContent": object{"any": string(r.Content)}}
	if r.NodeID != "" {
		metadata["nodeId"] = r.NodeID
	}
	if !r.EOL.IsZero() {
		metadata["eol"] = r.EOL.UTC()
	}
	if r.Test {
		metadata["testMessage"] = true
	}
	if len(r.Files) > 0 {
		content["attachmentHeaderList"] = object{"attachmentHeader": r.Files}
	}
	return inJSON("send", object{"itSystem": r.ITSystem, "requestMessage": object{
		"messageType": "RequestMessageType", "requestMetadata": metadata, "requestContent": object{"content": content},
	}})
}

// inJSON returns the request of a method.
func inJSON(method string, query object) httpcall.Request {
	body, _ := json.Marshal(query) // texts and times, which always have a form in JSON
	return httpcall.Request{Path: "/" + method, Body: body, Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}}
}

// read reads an answer. It does not mind what follows it, as after one that was taken.
func (rest) read(a httpcall.Answer) (s said) {
	for _, name := range []string{soap.ValidationFault, soap.SystemFault} {
		if (a.Status < 200 || a.Status > 299) && s.fault.Name == "" && strings.Contains(string(a.Body), name) {
			s.fault.Name = name
		}
	}
	var body struct {
		MessageID string            `json:"messageId"`
		Result    []json.RawMessage `json:"queryResult"`
	}
	err := json.NewDecoder(bytes.NewReader(a.Body)).Decode(&body)
	s.messageID, s.listed = body.MessageID, err == nil && a.Whole && !a.Foreign()
	for _, raw := range body.Result {
		var m soap.Found
		s.listed = s.listed && json.Unmarshal(raw, &m) == nil
		s.found = append(s.found, response{Message: m.Message(), body: raw, contentType: "application/json"})
	}
	return s
}

// envelopes calls the adapter with SOAP: its methods are told apart by the action, and all have one URL.
type envelopes struct{}

func (envelopes) find(system, client, criteria string) httpcall.Request {
	return inSOAP(soap.AdapterFind(system, client, criteria))
}

func (envelopes) send(r soap.Request) httpcall.Request { return inSOAP(soap.AdapterSend(r)) }

// inSOAP returns the request of a call.
func inSOAP(c soap.Call) httpcall.Request {
	return httpcall.Request{Body: c.Envelope, Header: http.Header{"Content-Type": {"text/xml; charset=utf-8"}, "SOAPAction": {`"urn:` + c.Method + `"`}}}
}

// read reads an answer. A fault counts with any status, since some gateways set it to 200. An answer without a root is judged by its status.
func (envelopes) read(a httpcall.Answer) (s said) {
	text, bare, err := soap.XML(a.Header.Get("Content-Type"), a.Body)
	if err != nil {
		return s
	}
	answer, _ := soap.Read(text)
	s.fault, s.messageID = answer.Fault, answer.MessageID
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
