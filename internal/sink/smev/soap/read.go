package soap

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"regexp"
	"strings"
)

// Kind is what a message of the queue of responses says of its request.
type Kind string

// The kinds.
const (
	Response Kind = "response" // the answer; final
	Rejected Kind = "rejected" // the supplier of data refuses to answer; final
	Status   Kind = "status"   // the supplier's interim state; more follows
	Refused  Kind = "refused"  // by SMEV itself, after it had taken the request; final
	Progress Kind = "progress" // another state at SMEV; more follows
)

// Kinds lists every kind.
var Kinds = []Kind{Response, Rejected, Status, Refused, Progress}

// Message is a message of the queue of responses.
type Message struct {
	ID       string // by which it is acknowledged
	Original string // the MessageID of the request
	Kind     Kind
	Code     string // of a rejection, a state or a refusal
}

// Fault is a fault.
type Fault struct {
	Name string // as the operator's schemas have it, such as MessageIsAlreadySent; "" for one that is not in them
	Code string // what says more: SMEV-301, SignatureIsInvalid; nameless if nothing is known of it
}

// nameless is the code of a fault that says nothing that is known.
const nameless = "SOAP fault"

// The adapter's faults.
const (
	ValidationFault = "ValidationFault" // something is wrong with the request
	SystemFault     = "SystemFault"     // something is wrong with the adapter, whose schema says to try again without end
)

// Answer is an answer.
type Answer struct {
	Root      string // the element in the body: SendRequestResponse, Fault
	Fault     Fault
	Message   *Message // of GetResponse; nil: the queue is empty
	MessageID string   // of a request that the adapter has taken
	Found     []Found  // by the adapter
	Whole     bool     // it was read to its end
}

// XML returns the envelope of an answer: the body, or the root part of a multipart/related one, which may come without
// attachments too. bare reports whether there is nothing else. A part that is cut off is returned as far as it goes.
func XML(contentType string, body []byte) (envelope []byte, bare bool, err error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return body, true, nil
	}
	var parts [][]byte
	root := 0 // the first one, unless the type names another
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for len(parts) < maxParts {
		part, err := r.NextRawPart()
		if err != nil {
			break
		}
		if id := part.Header.Get("Content-Id"); id != "" && strings.Trim(id, "<>") == strings.Trim(params["start"], "<>") {
			root = len(parts)
		}
		text, err := io.ReadAll(part)
		if parts = append(parts, text); err != nil {
			break
		}
	}
	if len(parts) == 0 {
		return nil, false, errors.New("a multipart answer without parts")
	}
	return parts[root], len(parts) == 1, nil
}

// maxParts bounds the parts of an answer.
const maxParts = 1000

// maxText bounds a text that is kept of an answer, in bytes.
const maxText = 4000

// envelope is an envelope, with what is read of its body. Fields without a namespace match by local names, which all versions of the
// contract share.
type envelope struct {
	XMLName xml.Name   `xml:"http://schemas.xmlsoap.org/soap/envelope/ Envelope"`
	Spaces  []xml.Attr `xml:",any,attr"`
	Body    struct {
		Spaces []xml.Attr `xml:",any,attr"`
		Call   call       `xml:",any"`
	}
}

// call is what is called, or answered.
type call struct {
	XMLName xml.Name
	Spaces  []xml.Attr `xml:",any,attr"`

	// Of a Fault.
	FaultCode   string `xml:"faultcode"`
	FaultString string `xml:"faultstring"`
	Detail      struct {
		Faults []struct {
			XMLName   xml.Name
			SMEV      string `xml:"Code"`
			Adapter   string `xml:"code"`
			Signature string `xml:"SignatureVerificationFault"`
		} `xml:",any"`
	} `xml:"detail"`

	// Of GetResponseResponse.
	Queued struct {
		Response queued `xml:",any"`
	} `xml:"ResponseMessage"`

	// Of the adapter's MessageResult and QueryResultList.
	MessageID string   `xml:"MessageId"`
	Results   []result `xml:"QueryResult"`
}

// queued is a message of the queue of responses.
type queued struct {
	Original string `xml:"OriginalMessageId"`
	ID       string `xml:"MessageMetadata>MessageId"`
	Data     struct {
		ID       string    `xml:"MessageID"`
		Content  *struct{} `xml:"MessagePrimaryContent"`
		Rejected []struct {
			Code string `xml:"RejectionReasonCode"`
		} `xml:"RequestRejected"`
		Status *struct {
			Code string `xml:"StatusCode"`
		} `xml:"RequestStatus"`
		Progress *progress `xml:"AsyncProcessingStatus"`
	} `xml:"SenderProvidedResponseData"`
	Progress *progress `xml:"AsyncProcessingStatusData>AsyncProcessingStatus"` // of a message that SMEV itself sends
}

type progress struct {
	Original string `xml:"OriginalMessageId"`
	Category string `xml:"StatusCategory"`
	Code     string `xml:"SmevFault>Code"`
}

// Read reads an envelope, as far as it goes: what came before an error counts, but for one of several elements of a kind.
func Read(text []byte) (a Answer, err error) {
	var e envelope
	err = xml.NewDecoder(bytes.NewReader(text)).Decode(&e)
	said := &e.Body.Call
	if a.Root = said.XMLName.Local; a.Root == "" && err == nil {
		err = errors.New("it has no body")
	}
	if err != nil {
		err = fmt.Errorf("not an envelope of SOAP 1.1: %w", err)
	}
	a.Whole = err == nil
	switch a.Root {
	case "Fault":
		a.Fault = said.fault()
	case "GetResponseResponse":
		a.Message = said.Queued.Response.message()
	case "MessageResult":
		a.MessageID = clean(said.MessageID)
	case "QueryResultList":
		scope := declarations(e.Spaces, e.Body.Spaces, said.Spaces)
		for _, r := range said.Results {
			begin := bytes.LastIndexByte(text[:r.begun], '<')
			r.Document = document(text[begin:r.end], r.own, scope)
			a.Found = append(a.Found, r.Found)
		}
	}
	return a, err
}

// numbered are the faults that some gateways name by their number only.
var numbered = map[string]string{
	"SMEV-300": "InvalidMessageIdFormat", "SMEV-301": "MessageIsAlreadySent", "SMEV-501": "TargetMessageIsNotFound", "SMEV-600": "DestinationOverflow",
}

var number = regexp.MustCompile(`\bSMEV-\d+\b`)

func (c *call) fault() (f Fault) {
	for _, d := range c.Detail.Faults {
		if f.Name == "" && (strings.HasPrefix(d.XMLName.Space, faultsNS) || d.XMLName.Space == adapterFaultsNS) {
			f.Name = d.XMLName.Local
		}
		f.Code = cmp.Or(f.Code, clean(d.SMEV), clean(d.Adapter), clean(d.Signature))
	}
	if f.Name == "" {
		f.Code = cmp.Or(f.Code, number.FindString(c.FaultCode+" "+c.FaultString))
		f.Name, f.Code = numbered[f.Code], cmp.Or(f.Code, nameless)
	}
	return f
}

// message returns what the message says; nil if there is none.
func (q *queued) message() *Message {
	m := Message{ID: clean(cmp.Or(q.Data.ID, q.ID)), Original: clean(q.Original), Kind: Progress}
	switch d, p := &q.Data, cmp.Or(q.Data.Progress, q.Progress); {
	case p != nil:
		if p.Category == "requestIsRejectedBySmev" {
			m.Kind = Refused
		}
		m.Code, m.Original = clean(cmp.Or(p.Code, p.Category)), cmp.Or(m.Original, clean(p.Original))
	case len(d.Rejected) > 0:
		m.Kind, m.Code = Rejected, clean(d.Rejected[0].Code)
	case d.Status != nil:
		m.Kind, m.Code = Status, clean(d.Status.Code)
	case d.Content != nil:
		m.Kind = Response
	case m.ID == "":
		return nil
	}
	return &m
}

// clean returns a text of an answer, cut where it is too long to be one.
func clean(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), maxText)], ""))
}
