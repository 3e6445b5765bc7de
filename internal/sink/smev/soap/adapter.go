package soap

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The operator's adapter, by its own WSDL and schemas: SOAP 1.1, document/literal, without signatures.
const (
	adapterNS       = "urn://x-artefacts-smev-gov-ru/services/service-adapter/types"
	adapterFaultsNS = adapterNS + "/faults"
)

// The adapter's faults.
const (
	ValidationFault = "ValidationFault" // something is wrong with the request
	SystemFault     = "SystemFault"     // something is wrong with the adapter, whose schema says to try again without end
)

// AdapterRequest is a request that the adapter is to send.
type AdapterRequest struct {
	ITSystem string // the sender's mnemonic
	ClientID string
	NodeID   string    // "" for none
	EOL      time.Time // after which it is not to be delivered; zero for none
	Test     bool
	Content  []byte // as Content returns it
	Files    []File
}

// AdapterSend returns the call that sends a request through the adapter.
func AdapterSend(r AdapterRequest) Call {
	b := beginAdapter("ClientMessage", r.ITSystem)
	b.WriteString("<a:RequestMessage><a:messageType>RequestMessageType</a:messageType><a:RequestMetadata>")
	element(b, "a:clientId", r.ClientID)
	element(b, "a:nodeId", r.NodeID)
	if !r.EOL.IsZero() {
		element(b, "a:eol", r.EOL.UTC().Format(time.RFC3339))
	}
	if r.Test {
		element(b, "a:testMessage", strconv.FormatBool(true))
	}
	b.WriteString("</a:RequestMetadata><a:RequestContent><a:content><a:MessagePrimaryContent>")
	b.Write(r.Content)
	b.WriteString("</a:MessagePrimaryContent>")
	list(b, "a:AttachmentHeader", r.Files)
	b.WriteString("</a:content></a:RequestContent></a:RequestMessage>")
	return endAdapter(b, "ClientMessage", "Send")
}

// AdapterFind returns the call that asks the adapter for messages by the client's id of a request.
func AdapterFind(itSystem, clientID, criteria string) Call {
	b := beginAdapter("FindMessageQuery", itSystem)
	b.WriteString("<a:specificQuery><a:messageClientIdCriteria>")
	element(b, "a:clientId", clientID)
	element(b, "a:clientIdCriteria", criteria)
	b.WriteString("</a:messageClientIdCriteria></a:specificQuery>")
	return endAdapter(b, "FindMessageQuery", "Find")
}

func beginAdapter(root, itSystem string) *bytes.Buffer {
	b := bytes.NewBufferString(xml.Header)
	fmt.Fprintf(b, `<soap:Envelope xmlns:soap="%s"><soap:Body><a:%s xmlns:a="%s">`, envelopeNS, root, adapterNS)
	element(b, "a:itSystem", itSystem)
	return b
}

func endAdapter(b *bytes.Buffer, root, method string) Call {
	fmt.Fprintf(b, `</a:%s></soap:Body></soap:Envelope>`, root)
	return Call{Action: "urn:" + method, Envelope: b.Bytes()}
}

// AdapterAnswer is an answer of the adapter.
type AdapterAnswer struct {
	Answer           // Root is MessageResult, QueryResultList or Fault; no Message
	MessageID string // of a request that was taken
	Found     []Found
}

// Found is a message that was found, in XML or in JSON.
type Found struct {
	Meta struct {
		MessageID  string `json:"messageId" xml:"MessageId"`
		Original   string `json:"originalMessageId" xml:"OriginalMessageID"`
		OriginalID string `json:"-" xml:"OriginalMessageId"` // as some adapters spell it
	} `json:"smevMetadata" xml:"smevMetadata"`
	Said struct {
		Type    string `json:"messageType" xml:"messageType"`
		Status  string `json:"status" xml:"status"`
		Fault   *coded `json:"fault" xml:"fault"`
		Content *struct {
			Content *struct{} `json:"content" xml:"content"`
			Rejects []coded   `json:"rejects" xml:"rejects"`
			Status  *coded    `json:"status" xml:"status"`
		} `json:"responseContent" xml:"ResponseContent"`
	} `json:"message" xml:"Message"`

	// Document is the QueryResult as it stands in an answer in XML, with the declarations of namespaces around it: a document by itself.
	Document []byte `json:"-" xml:"-"`
}

type coded struct {
	Code string `json:"code" xml:"code"`
}

// Message returns what the message says of its request. Its Kind is "" if it says nothing of what became of that.
func (f *Found) Message() Message {
	m := Message{ID: clean(f.Meta.MessageID), Original: clean(cmp.Or(f.Meta.Original, f.Meta.OriginalID))}
	switch said := &f.Said; {
	case said.Fault != nil:
		m.Kind, m.Code = Refused, clean(said.Fault.Code)
	case clean(said.Type) == "ErrorMessage" || clean(said.Status) == "ERROR":
		m.Kind = Refused
	case said.Content == nil:
	case len(said.Content.Rejects) > 0:
		m.Kind, m.Code = Rejected, clean(said.Content.Rejects[0].Code)
	case said.Content.Status != nil:
		m.Kind, m.Code = Status, clean(said.Content.Status.Code)
	case said.Content.Content != nil:
		m.Kind = Response
	}
	return m
}

// ReadAdapter reads an envelope of the adapter, as far as it goes, like Read.
func ReadAdapter(text []byte) (AdapterAnswer, error) {
	e, a, err := read(text)
	said := AdapterAnswer{Answer: a, MessageID: clean(e.Body.Call.MessageID)}
	scope := declarations(e.Spaces, e.Body.Spaces, e.Body.Call.Spaces)
	for _, r := range e.Body.Call.Results {
		begin := bytes.LastIndexByte(text[:r.begun], '<')
		r.Document = document(text[begin:r.end], r.own, scope)
		said.Found = append(said.Found, r.Found)
	}
	return said, err
}

// result is a message that was found, and where it stands in an answer.
type result struct {
	Found
	own        []xml.Attr // declarations of namespaces
	begun, end int64      // behind its first tag, and behind it
}

// UnmarshalXML implements xml.Unmarshaler.
func (r *result) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	r.own, r.begun = declarations(start.Attr), d.InputOffset()
	err := d.DecodeElement(&r.Found, &start)
	r.end = d.InputOffset()
	return err
}

// document returns an element with the declarations of what is around it, but for those that it has itself.
func document(element []byte, own, scope []xml.Attr) []byte {
	name := bytes.IndexAny(element, " \t\r\n/>")
	b := bytes.NewBuffer(slices.Clone(element[:name]))
	for i, a := range scope {
		again := func(o xml.Attr) bool { return o.Name == a.Name }
		if a.Value == "" || slices.ContainsFunc(own, again) || slices.ContainsFunc(scope[i+1:], again) {
			continue // the innermost counts
		}
		b.WriteString(" xmlns")
		if a.Name.Space != "" {
			b.WriteString(":" + a.Name.Local)
		}
		b.WriteString(`="`)
		escape(b, a.Value)
		b.WriteString(`"`)
	}
	b.Write(element[name:])
	return b.Bytes()
}

// declarations returns the declarations of namespaces among attributes.
func declarations(attributes ...[]xml.Attr) []xml.Attr {
	return slices.DeleteFunc(slices.Concat(attributes...), func(a xml.Attr) bool { return !declares(a) })
}
