package smev

import (
	"context"
	"crypto/sha1" //nolint:gosec // what RFC 9562 makes a UUID of version 5 with; nothing depends on its strength
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// adapter sends requests through the operator's adapter, which signs them, gives them to SMEV and collects the responses. It
// knows requests by an id of the client's, which is made of the job and always the same. What a second send of one id does
// is not documented, so a request is looked for before it is sent: any attempt may be the one after a crash.
type adapter struct{ *Sink }

// What find looks for.
const (
	requestByRequest  = "GET_REQUEST_BY_REQUEST_CLIENTID"
	responseByRequest = "GET_RESPONSE_BY_REQUEST_CLIENTID"
)

// deliver sends the job's request, unless the adapter has it.
func (a adapter) deliver(ctx context.Context, job *delivery.Job, shown *sinkhttp.Exchange) delivery.Result {
	client := clientID(job)
	if job.State != nil {
		return a.poll(ctx, job, client, shown)
	}
	content, err := soap.Content(job.Payload)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: "payload: " + err.Error()}
	}
	found, problem := a.find(ctx, client, requestByRequest, shown)
	if problem == nil && len(found) == 0 {
		problem = a.send(ctx, job, client, string(content), shown)
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
	h := sha1.New() //nolint:gosec // see the import
	who := identityOf(job)
	_, _ = h.Write(clientIDs[:]) // hashing never fails, as documented
	_, _ = h.Write(who.hash[:])
	var u [sha1.Size]byte
	h.Sum(u[:0])
	u[6], u[8] = u[6]&0x0f|0x50, u[8]&0x3f|0x80
	text := hex.EncodeToString(u[:16])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// clientIDs is the namespace of the ids.
var clientIDs = [16]byte{0x5d, 0x8f, 0x3c, 0x57, 0x0e, 0x42, 0x4b, 0x1d, 0x9a, 0x6c, 0x2f, 0x71, 0x84, 0xd3, 0xa9, 0x10}

// message is a message as the adapter tells of it; raw is all of it.
type message struct {
	raw  json.RawMessage
	Meta struct {
		MessageID string `json:"messageId"`
		Original  string `json:"originalMessageId"`
	} `json:"smevMetadata"`
	Message struct {
		Type    string   `json:"messageType"`
		Status  category `json:"status"`
		Fault   *coded   `json:"fault"`
		Content *struct {
			Content *struct{} `json:"content"`
			Rejects []coded   `json:"rejects"`
			Status  *coded    `json:"status"`
		} `json:"responseContent"`
	} `json:"message"`
}

type coded struct {
	Code string `json:"code"`
}

type category string

// find asks for messages by the id of a request. The problem is what is known if there is no answer.
func (a adapter) find(ctx context.Context, client, criteria string, shown *sinkhttp.Exchange) (found []message, problem *delivery.Result) {
	type specific struct {
		Criteria struct {
			ClientID string `json:"clientId"`
			Which    string `json:"clientIdCriteria"`
		} `json:"messageClientIdCriteria"`
	}
	query := struct {
		ItSystem string   `json:"itSystem"`
		Query    specific `json:"specificQuery"`
	}{ItSystem: a.config.ITSystem}
	query.Query.Criteria.ClientID, query.Query.Criteria.Which = client, criteria
	answer, problem := a.post(ctx, "find", query, maxFound, shown)
	if problem != nil {
		switch problem.Class {
		case delivery.Permanent: // nothing in the question is the job's
			problem.Class = delivery.Misconfigured
		case delivery.Temporary: // nor can a question do harm
			problem.Detail = strings.TrimSuffix(problem.Detail, mayHaveArrived)
		}
		return nil, problem
	}
	var said struct {
		Result []json.RawMessage `json:"queryResult"`
	}
	err := json.Unmarshal(answer.Body, &said)
	for _, raw := range said.Result {
		m := message{raw: raw}
		if err = json.Unmarshal(raw, &m); err != nil {
			break
		}
		found = append(found, m)
	}
	if err != nil || !answer.Whole || len(answer.Body) == 0 || answer.Body[0] != '{' {
		return nil, &delivery.Result{
			Class: delivery.Temporary, By: delivery.ByNobody, Status: answer.Status, Detail: "no answer of an adapter to find, from " + a.parts.Now().api.Where(),
		}
	}
	return found, nil
}

// send sends a request. The problem is what is known if it was not taken.
func (a adapter) send(ctx context.Context, job *delivery.Job, client, content string, shown *sinkhttp.Exchange) (problem *delivery.Result) {
	type metadata struct {
		ClientID string    `json:"clientId"`
		NodeID   string    `json:"nodeId,omitempty"`
		EOL      time.Time `json:"eol,omitzero"`
		Test     bool      `json:"testMessage,omitempty"`
	}
	type primary struct {
		Any string `json:"any"`
	}
	type inner struct {
		Primary primary `json:"messagePrimaryContent"`
	}
	type outer struct {
		Content inner `json:"content"`
	}
	type request struct {
		Type     string   `json:"messageType"`
		Metadata metadata `json:"requestMetadata"`
		Content  outer    `json:"requestContent"`
	}
	answer, problem := a.post(ctx, "send", struct {
		ItSystem string  `json:"itSystem"`
		Request  request `json:"requestMessage"`
	}{a.config.ITSystem, request{
		Type:     "RequestMessageType",
		Metadata: metadata{ClientID: client, NodeID: a.config.NodeID, EOL: job.ExpiresAt.UTC(), Test: a.config.TestMessage},
		Content:  outer{inner{primary{content}}},
	}}, maxAnswer, shown)
	if problem != nil {
		return problem
	}
	var said struct {
		MessageID string `json:"messageId"`
	}
	d := json.NewDecoder(strings.NewReader(string(answer.Body))) // which does not mind what follows
	if d.Decode(&said) != nil || said.MessageID == "" {
		return &delivery.Result{
			Class: delivery.Temporary, By: delivery.ByNobody, Status: answer.Status,
			Detail: "no answer of an adapter to send, from " + a.parts.Now().api.Where() + mayHaveArrived,
		}
	}
	return nil
}

const (
	maxFound       = 32 << 20 // bytes of an answer of find, which holds a response with its attachments' headers
	mayHaveArrived = "; the request may have arrived"
)

// post calls a method of the adapter. The problem is what is known if it does not answer with success.
func (a adapter) post(ctx context.Context, method string, query any, most int64, shown *sinkhttp.Exchange) (answer sinkhttp.Answer, problem *delivery.Result) {
	body, err := json.Marshal(query)
	if err != nil {
		return answer, &delivery.Result{Class: delivery.Permanent, Detail: "payload: " + err.Error()}
	}
	p := a.parts.Now()
	answer, problem = p.api.Post(ctx, sinkhttp.Request{
		Path: strings.TrimSuffix(p.path, "/") + "/" + method, Body: body, Most: most, Shown: shown,
		Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}},
	})
	if problem != nil {
		return answer, problem
	}
	res := answer.ByStatus(time.Now())
	if res.Class == delivery.Delivered {
		return answer, nil
	}
	text := string(answer.Body)
	res.Detail = "HTTP " + strconv.Itoa(answer.Status) + " from " + p.api.Where()
	switch {
	case strings.Contains(text, "ValidationFault"), answer.Status == http.StatusBadRequest, answer.Status == http.StatusUnprocessableEntity,
		answer.Status == http.StatusRequestEntityTooLarge:
		res.Class, res.RetryAfter = delivery.Permanent, 0
		res.Provider = &delivery.Provider{Code: "ValidationFault"}
	case strings.Contains(text, "SystemFault"):
		if res.Class != delivery.Throttled {
			res.Class, res.By = delivery.Temporary, delivery.ByDestination
		}
		res.Provider = &delivery.Provider{Code: "SystemFault"}
	}
	if res.Provider != nil {
		res.Detail = res.Provider.Code + ", " + res.Detail
	}
	return answer, &res
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
