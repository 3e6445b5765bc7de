package smev

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// rest calls the adapter with JSON: its methods are below the URL.
type rest struct{}

// object is an object in JSON.
type object = map[string]any

func (rest) find(system, client, criteria string) httpcall.Request {
	return inJSON("find", object{"itSystem": system, "specificQuery": object{
		"messageClientIdCriteria": object{"clientId": client, "clientIdCriteria": criteria},
	}})
}

func (rest) send(r soap.AdapterRequest) httpcall.Request {
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
