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
	Name string // as the operator's schema has it, such as MessageIsAlreadySent; "" for one that is not SMEV's
	Code string // what says more: SMEV-301, SignatureIsInvalid
}

// Answer is an answer.
type Answer struct {
	Root    string // the element in the body: SendRequestResponse, Fault
	Fault   Fault
	Message *Message // of GetResponse; nil: the queue is empty
	Whole   bool     // it was read to its end
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

// Read reads an envelope, as far as it goes: what came before an error counts. Elements are told apart by their local
// names, which all versions of the contract share.
func Read(envelope []byte) (Answer, error) {
	r := reader{envelope: envelope}
	err := r.read()
	return r.answer, err
}

type reader struct {
	envelope []byte
	decoder  *xml.Decoder
	path     []string // local names
	answer   Answer
	message  Message
	list     list
	texts    [texts]string
	inText   *string
}

func (r *reader) read() error {
	r.decoder = xml.NewDecoder(bytes.NewReader(r.envelope))
	err := r.run()
	if r.answer.Root == "" && err == nil {
		err = errors.New("not an envelope of SOAP 1.1")
	}
	r.answer.Whole = err == nil
	r.complete()
	return err
}

// Texts that are needed at the end.
const (
	faultCode   = iota // of SOAP
	faultString        // of SOAP
	smevCode
	metadataID
	messageType   // of a message of the adapter
	messageStatus // the same
	texts         // how many there are
)

// Elements in an envelope, in its body, and in a fault's detail.
const (
	inEnvelope = 1
	inBody     = 2
	inCall     = 3
	inDetail   = 4
)

func (r *reader) run() error {
	for {
		at := r.decoder.InputOffset()
		token, err := r.decoder.Token()
		if errors.Is(err, io.EOF) && len(r.path) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not well-formed XML: %w", err)
		}
		switch t := token.(type) {
		case xml.Directive:
			return errors.New("a DTD is not allowed")
		case xml.StartElement:
			if len(r.path) >= maxDepth {
				return fmt.Errorf("more than %d elements in each other", maxDepth)
			}
			if len(r.path) == 0 && t.Name != (xml.Name{Space: envelopeNS, Local: "Envelope"}) {
				return errors.New("not an envelope of SOAP 1.1")
			}
			r.path = append(r.path, t.Name.Local)
			r.listBegins(t, at)
			r.inText = r.begins(t.Name)
			if t.Name.Local == "MessagePrimaryContent" || t.Name.Local == "Header" && len(r.path) == inBody {
				if err := r.decoder.Skip(); err != nil { // the content is the supplier's, whatever its elements are called
					return fmt.Errorf("not well-formed XML: %w", err)
				}
				r.path = r.path[:len(r.path)-1]
			}
		case xml.EndElement:
			if err := r.listEnds(); err != nil {
				return err
			}
			r.path, r.inText = r.path[:len(r.path)-1], nil
		case xml.CharData:
			if r.inText != nil && len(*r.inText) < maxText {
				*r.inText += string(t[:min(len(t), maxText)])
			}
		}
	}
}

// at returns the local name of the n-th element that the current one is in, itself being 0.
func (r *reader) at(n int) string {
	if n >= len(r.path) {
		return ""
	}
	return r.path[len(r.path)-1-n]
}

// begins notes an element, and returns where its text belongs.
func (r *reader) begins(name xml.Name) *string {
	if len(r.path) == inCall && r.path[inEnvelope] == "Body" && r.answer.Root == "" {
		r.answer.Root = name.Local
	}
	if len(r.path) < inCall {
		return nil
	}
	switch r.answer.Root {
	case "Fault":
		return r.inFault(name)
	case "QueryResultList":
		return r.inList(name.Local)
	}
	m := &r.message
	switch r.at(1) + "/" + name.Local {
	case "SenderProvidedResponseData/MessageID":
		return &m.ID
	case "MessageMetadata/MessageId", "MessageResult/MessageId":
		return &r.texts[metadataID]
	case "Response/OriginalMessageId":
		return &m.Original
	case "SenderProvidedResponseData/MessagePrimaryContent":
		m.Kind = Response
	case "SenderProvidedResponseData/RequestRejected":
		m.Kind = Rejected
	case "SenderProvidedResponseData/RequestStatus":
		m.Kind = Status
	case "SenderProvidedResponseData/AsyncProcessingStatus", "AsyncProcessingStatusData/AsyncProcessingStatus":
		m.Kind = Progress
	case "RequestRejected/RejectionReasonCode", "RequestStatus/StatusCode", "AsyncProcessingStatus/StatusCategory":
		return first(&m.Code) // the first of several reasons
	case "AsyncProcessingStatus/OriginalMessageId":
		return first(&m.Original)
	case "SmevFault/Code":
		return &r.texts[smevCode]
	}
	return nil
}

// first returns the place, unless it has been filled.
func first(place *string) *string {
	if *place != "" {
		return nil
	}
	return place
}

func (r *reader) inFault(name xml.Name) *string {
	switch {
	case len(r.path) == inCall+1 && name.Local == "faultcode":
		return &r.texts[faultCode]
	case len(r.path) == inCall+1 && name.Local == "faultstring":
		return &r.texts[faultString]
	case len(r.path) <= inDetail || r.path[inCall] != "detail":
		return nil
	case len(r.path) == inDetail+1:
		if r.answer.Fault.Name == "" && (strings.HasPrefix(name.Space, faultsNS) || name.Space == adapterFaultsNS) {
			r.answer.Fault.Name = name.Local
		}
	case name.Local == "Code", name.Local == "code", name.Local == "SignatureVerificationFault":
		return first(&r.texts[smevCode])
	}
	return nil
}

// numbered are the faults that some gateways name by their number only.
var numbered = map[string]string{
	"SMEV-300": "InvalidMessageIdFormat", "SMEV-301": "MessageIsAlreadySent", "SMEV-501": "TargetMessageIsNotFound", "SMEV-600": "DestinationOverflow",
}

var number = regexp.MustCompile(`\bSMEV-\d+\b`)

// complete puts together what was read.
func (r *reader) complete() {
	m, f := &r.message, &r.answer.Fault
	for i := range r.texts {
		r.texts[i] = clean(r.texts[i])
	}
	for _, text := range []*string{&m.ID, &m.Original, &m.Code} {
		*text = clean(*text)
	}
	code := r.texts[smevCode]
	if r.answer.Root == "Fault" {
		if f.Code = code; f.Name == "" {
			f.Code = cmp.Or(f.Code, number.FindString(r.texts[faultCode]+" "+r.texts[faultString]))
			f.Name = numbered[f.Code]
		}
		return
	}
	m.ID = cmp.Or(m.ID, r.texts[metadataID])
	if m.Kind == Progress {
		if m.Code == "requestIsRejectedBySmev" {
			m.Kind = Refused
		}
		m.Code = cmp.Or(code, m.Code)
	}
	if r.answer.Root == "GetResponseResponse" && (m.Kind != "" || m.ID != "") {
		m.Kind = cmp.Or(m.Kind, Progress) // of a version that is not known here
		r.answer.Message = m
	}
}

func clean(s string) string { return strings.TrimSpace(strings.ToValidUTF8(s, "?")) }
