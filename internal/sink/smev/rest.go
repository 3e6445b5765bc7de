package smev

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// rest calls the adapter with JSON: its methods are below the URL.
type rest struct{ *Sink }

// object is an object in JSON.
type object = map[string]any

func (f rest) find(ctx context.Context, client, criteria string, shown *base.Exchange) (found []response, problem *delivery.Result) {
	query := object{"itSystem": f.config.ITSystem, "specificQuery": object{
		"messageClientIdCriteria": object{"clientId": client, "clientIdCriteria": criteria},
	}}
	answer, problem := f.post(ctx, "find", query, maxFound, shown)
	if problem != nil {
		return nil, problem
	}
	var said struct {
		Result []json.RawMessage `json:"queryResult"`
	}
	err := json.Unmarshal(answer.Body, &said)
	for _, raw := range said.Result {
		var m soap.Found
		if err = json.Unmarshal(raw, &m); err != nil {
			break
		}
		found = append(found, response{Message: m.Message(), body: raw, contentType: "application/json"})
	}
	if err != nil || !answer.Whole || len(answer.Body) == 0 || answer.Body[0] != '{' {
		return nil, foreign(answer, "find", f.Now().Where())
	}
	return found, nil
}

func (f rest) send(ctx context.Context, r soap.AdapterRequest, shown *base.Exchange) (problem *delivery.Result) {
	metadata, content := object{"clientId": r.ClientID}, object{"messagePrimaryContent": object{"any": string(r.Content)}}
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
	answer, problem := f.post(ctx, "send", object{"itSystem": r.ITSystem, "requestMessage": object{
		"messageType": "RequestMessageType", "requestMetadata": metadata, "requestContent": object{"content": content},
	}}, maxAnswer, shown)
	if problem != nil {
		return problem
	}
	var said struct {
		MessageID string `json:"messageId"`
	}
	d := json.NewDecoder(strings.NewReader(string(answer.Body))) // which does not mind what follows
	if d.Decode(&said) != nil || said.MessageID == "" {
		return foreign(answer, "send", f.Now().Where())
	}
	return nil
}

// post calls a method of the adapter. The problem is what is known if it does not answer with success.
func (f rest) post(ctx context.Context, method string, query any, most int64, shown *base.Exchange) (answer httpcall.Answer, problem *delivery.Result) {
	body, err := json.Marshal(query)
	if err != nil {
		return answer, &delivery.Result{Class: delivery.Permanent, Detail: "payload: " + err.Error()}
	}
	p := f.Now()
	answer, problem = p.Post(ctx, httpcall.Request{
		Path: "/" + method, Body: body, Most: most, Shown: shown,
		Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}},
	})
	if problem != nil {
		return answer, problem
	}
	var fault soap.Fault
	if answer.Status < 200 || answer.Status > 299 {
		for _, name := range []string{soap.ValidationFault, soap.SystemFault} {
			if strings.Contains(string(answer.Body), name) {
				fault.Name = name
				break
			}
		}
	}
	return answer, refused(answer, fault, p.Where())
}
