package sinktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Adapter stands in for the operator's adapter to SMEV 3: its methods Send and Find, by REST below the URL and by SOAP at it.
// It knows requests by the client's id and, since no documentation says otherwise, registers one that comes twice twice.
type Adapter struct {
	*Server
	ItSystem string
	options  AdapterOptions

	mu       sync.Mutex
	requests []AdapterRequest // that were registered, in order
	known    map[string][]int // where in them, by the client's id
	sent     map[string]int   // by the client's id, whatever became of it
	found    map[string]int   // find for a response, the same
}

// AdapterOptions are how a stand-in behaves.
type AdapterOptions struct {
	Plain bool // without TLS
	// Treat, if set, is asked for each send that is in order, before it is registered. It answers, or returns false.
	Treat func(c *Call, r AdapterRequest, n int) (treated bool)
	// Find, if set, is asked for each find. It answers, or returns false.
	Find func(c *Call, f AdapterFind) (treated bool)
	// Deaf, if set, returns true for requests to register and not answer.
	Deaf func(r AdapterRequest, n int) bool
	// Supplier, if set, says what becomes of a request; nil: one response, at once.
	Supplier func(r AdapterRequest) []SMEVReply
	// Parts, if set, is the number of parts of multipart/related in answers to find by SOAP.
	Parts int
	// Files, if set, are the paths of the files in the adapter's storage. A request with another one is refused.
	Files []string
}

// AdapterRequest is a request that was sent.
type AdapterRequest struct {
	ClientID string
	At       time.Time
	Content  string // XML
	Test     bool
	NodeID   string
	EOL      string
	Files    []AdapterFile
}

// AdapterFile is an attachment, which lies in the adapter's storage.
type AdapterFile struct {
	ID, FilePath, PassportID, SignaturePKCS7, TransferMethod string
	ReusableAttachment                                       bool
}

// AdapterFind is a find for a request, or for the response to one.
type AdapterFind struct {
	ClientID string
	Response bool
	Final    bool   // there is a response after which nothing comes
	Usual    func() // answers it
}

// StartAdapter starts a stand-in, with a certificate unless the options say otherwise.
func StartAdapter(t testing.TB, o AdapterOptions) *Adapter {
	t.Helper()
	a := &Adapter{ItSystem: "RND001", options: o, known: map[string][]int{}, sent: map[string]int{}, found: map[string]int{}}
	protocol := TLS
	if o.Plain {
		protocol = Plain
	}
	a.Server = Start(t, protocol, Options{}, a.handle)
	a.URL = strings.TrimSuffix(a.URL, "/deliver") + "/ws"
	return a
}

// Requests returns the requests that were registered, in order.
func (a *Adapter) Requests() []AdapterRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// Sent returns how often each client's id was sent.
func (a *Adapter) Sent() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.sent)
}

func (a *Adapter) handle(c *Call) {
	if isSOAP(c) {
		a.handleSOAP(c)
		return
	}
	var head struct{ ItSystem string }
	switch {
	case c.Header.Get("Content-Type") != "application/json; charset=utf-8":
		c.Answer(415)
	case json.Unmarshal(c.Payload, &head) != nil:
		a.Fault(c, "ValidationFault", "not JSON")
	case head.ItSystem != a.ItSystem:
		a.Fault(c, "ValidationFault", "no such itSystem")
	case c.Path == "/ws/send":
		a.send(c)
	case c.Path == "/ws/find":
		a.find(c)
	default:
		c.Answer(404)
	}
}

// Fault answers with one of the adapter's two faults.
func (a *Adapter) Fault(c *Call, name, text string) {
	if isSOAP(c) {
		a.faultSOAP(c, name, text)
		return
	}
	status := 500
	if name == "ValidationFault" {
		status = 400
	}
	c.JSON(status, fmt.Sprintf(`{"fault":{"code":%q,"description":%q}}`, name, text))
}

// send is Send.
func (a *Adapter) send(c *Call) {
	var body struct {
		ItSystem       string
		RequestMessage struct {
			MessageType     string
			RequestMetadata struct {
				ClientID    string `json:"clientId"`
				NodeID      string `json:"nodeId"`
				EOL         string `json:"eol"`
				TestMessage bool   `json:"testMessage"`
			} `json:"requestMetadata"`
			RequestContent struct {
				Content struct {
					MessagePrimaryContent struct{ Any string } `json:"messagePrimaryContent"`
					AttachmentHeaderList  struct {
						AttachmentHeader []AdapterFile `json:"attachmentHeader"`
					} `json:"attachmentHeaderList"`
				} `json:"content"`
			} `json:"requestContent"`
		} `json:"requestMessage"`
	}
	d := json.NewDecoder(bytes.NewReader(c.Payload))
	d.DisallowUnknownFields()
	err := d.Decode(&body)
	m := body.RequestMessage.RequestMetadata
	r := AdapterRequest{
		ClientID: m.ClientID, At: time.Now(), Content: body.RequestMessage.RequestContent.Content.MessagePrimaryContent.Any,
		Test: m.TestMessage, NodeID: m.NodeID, EOL: m.EOL, Files: body.RequestMessage.RequestContent.Content.AttachmentHeaderList.AttachmentHeader,
	}
	if err != nil || r.ClientID == "" || !strings.HasPrefix(r.Content, "<") {
		a.Fault(c, "ValidationFault", "not a request")
		return
	}
	a.take(c, r)
}

// take takes a request that is in order.
func (a *Adapter) take(c *Call, r AdapterRequest) {
	for _, f := range r.Files {
		if a.options.Files != nil && !slices.Contains(a.options.Files, f.FilePath) {
			a.Fault(c, "ValidationFault", "no file "+f.FilePath)
			return
		}
	}
	a.mu.Lock()
	a.sent[r.ClientID]++
	n := a.sent[r.ClientID]
	a.mu.Unlock()
	if a.options.Treat != nil && a.options.Treat(c, r, n) {
		return
	}
	a.Register(r)
	if a.options.Deaf != nil && a.options.Deaf(r, n) {
		c.Hang()
		return
	}
	a.Accept(c, r.ClientID)
}

// Register takes a request.
func (a *Adapter) Register(r AdapterRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[r.ClientID] = append(a.known[r.ClientID], len(a.requests))
	a.requests = append(a.requests, r)
}

// Accept answers as the adapter does when it has taken a request.
func (a *Adapter) Accept(c *Call, clientID string) {
	if isSOAP(c) {
		c.Text(200, typeXML, a.Accepted(c, clientID))
		return
	}
	c.JSON(200, a.Accepted(c, clientID))
}

// Accepted returns that answer.
func (a *Adapter) Accepted(c *Call, clientID string) string {
	if isSOAP(c) {
		return a.acceptedSOAP(clientID)
	}
	return fmt.Sprintf(`{"itSystem":%q,"messageId":%q}`, a.ItSystem, messageIDOf(clientID))
}

// messageIDOf is what the adapter calls a request at SMEV.
func messageIDOf(clientID string) string { return "m-of-" + clientID }

// find is Find, by a client's id.
func (a *Adapter) find(c *Call) {
	var body struct {
		SpecificQuery struct {
			MessageClientIDCriteria struct {
				ClientID         string `json:"clientId"`
				ClientIDCriteria string `json:"clientIdCriteria"`
			} `json:"messageClientIdCriteria"`
		} `json:"specificQuery"`
	}
	_ = json.Unmarshal(c.Payload, &body) // it was JSON before
	criteria := body.SpecificQuery.MessageClientIDCriteria
	a.look(c, criteria.ClientID, criteria.ClientIDCriteria, func(found []adapterFound) {
		list := []string{}
		for _, f := range found {
			list = append(list, f.json())
		}
		c.JSON(200, `{"queryResult":[`+strings.Join(list, ",")+`]}`)
	})
}

// adapterFound is a message that find finds: a request, or what has become of one.
type adapterFound struct {
	of    AdapterRequest
	n     int // of the replies to it
	reply *SMEVReply
}

// look looks for messages by a client's id, and has them answered.
func (a *Adapter) look(c *Call, client, criteria string, answer func(found []adapterFound)) {
	f := AdapterFind{ClientID: client, Response: criteria == "GET_RESPONSE_BY_REQUEST_CLIENTID"}
	var found []adapterFound
	a.mu.Lock()
	for _, at := range a.known[client] {
		r := a.requests[at]
		switch criteria {
		case "GET_REQUEST_BY_REQUEST_CLIENTID":
			found = append(found, adapterFound{of: r})
		case "GET_RESPONSE_BY_REQUEST_CLIENTID":
			said, last := a.responses(r)
			found, f.Final = append(found, said...), f.Final || last
		}
	}
	if f.Response {
		a.found[client]++
	}
	a.mu.Unlock()
	f.Usual = func() { answer(found) }
	if a.options.Find == nil || !a.options.Find(c, f) {
		f.Usual()
	}
}

// responses returns what has become of a request by now, and whether that is final.
func (a *Adapter) responses(r AdapterRequest) (list []adapterFound, final bool) {
	replies := []SMEVReply{{Kind: "MessagePrimaryContent"}}
	if a.options.Supplier != nil {
		replies = a.options.Supplier(r)
	}
	for i := range replies {
		if time.Since(r.At) < replies[i].After {
			continue
		}
		final = final || replies[i].Kind != "RequestStatus"
		list = append(list, adapterFound{r, i, &replies[i]})
	}
	return list, final
}

// id returns the MessageID of a response.
func (f adapterFound) id() string { return fmt.Sprintf("r%d-%s", f.n, f.of.ClientID) }

func (f adapterFound) json() string {
	client := f.of.ClientID
	if f.reply == nil {
		return fmt.Sprintf(`{"smevMetadata":{"messageId":%q},"message":{"messageType":"RequestMessageType","requestMetadata":{"clientId":%q}}}`,
			messageIDOf(client), client)
	}
	meta := fmt.Sprintf(`"smevMetadata":{"messageId":%q,"originalMessageID":%q}`, f.id(), messageIDOf(client))
	switch f.reply.Kind {
	case "RequestRejected":
		return fmt.Sprintf(`{%s,"message":{"messageType":"ResponseMessageType","responseContent":{"rejects":[{"code":%q,"description":"no"}]}}}`, meta, f.reply.Code)
	case "RequestStatus":
		return fmt.Sprintf(`{%s,"message":{"messageType":"ResponseMessageType","responseContent":{"status":{"code":%q,"description":"soon"}}}}`, meta, f.reply.Code)
	case "AsyncProcessingStatus":
		return fmt.Sprintf(`{%s,"message":{"messageType":"ErrorMessage","type":"CLIENT","status":"ERROR","details":"no","fault":{"code":%q,"description":"no"}}}`, meta, f.reply.Code)
	}
	return fmt.Sprintf(`{%s,"message":{"messageType":"PrimaryMessage","responseMetadata":{"clientId":"c","replyToClientId":%q},`+
		`"responseContent":{"content":{"messagePrimaryContent":{"any":"<r/>"}}}}}`, meta, client)
}
