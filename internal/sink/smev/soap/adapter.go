package soap

import (
	"bytes"
	"encoding/xml"
	"errors"
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
	writeFiles(b, r.Files)
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

// Found is a message that was found. Its Kind is "" if it says nothing of what became of a request.
type Found struct {
	Message
	// Document is the QueryResult as it stands in the answer, with the declarations of namespaces around it: a document by itself.
	Document []byte
}

// maxFound bounds the messages of an answer.
const maxFound = 1000

// ReadAdapter reads an envelope of the adapter, as far as it goes, like Read.
func ReadAdapter(envelope []byte) (AdapterAnswer, error) {
	r := reader{envelope: envelope}
	err := r.read()
	return AdapterAnswer{Answer: r.answer, MessageID: r.texts[metadataID], Found: r.list.found}, err
}

// list is what is read of the messages that were found.
type list struct {
	scope []xml.Attr // declarations of namespaces around them
	own   []xml.Attr // those of the one that is read
	from  int64      // where that begins
	found []Found
}

// inResult is how many elements a message that was found is in, itself included.
const inResult = inCall + 1

// listBegins notes an element of an answer that begins at an offset.
func (r *reader) listBegins(t xml.StartElement, at int64) {
	switch {
	case len(r.path) <= inCall:
		r.list.scope = append(r.list.scope, declarations(t)...)
	case len(r.path) == inResult && t.Name.Local == "QueryResult" && r.answer.Root == "QueryResultList":
		r.list.own, r.list.from, r.message = declarations(t), at, Message{}
		r.texts[messageType], r.texts[messageStatus] = "", ""
	}
}

// listEnds notes that an element of an answer ends.
func (r *reader) listEnds() error {
	if len(r.path) != inResult || r.path[inCall] != "QueryResult" || r.answer.Root != "QueryResultList" {
		return nil
	}
	if len(r.list.found) == maxFound {
		return errors.New("more than " + strconv.Itoa(maxFound) + " messages")
	}
	m := r.message
	if clean(r.texts[messageType]) == "ErrorMessage" || clean(r.texts[messageStatus]) == "ERROR" {
		m.Kind = Refused
	}
	for _, text := range []*string{&m.ID, &m.Original, &m.Code} {
		*text = clean(*text)
	}
	r.list.found = append(r.list.found, Found{m, r.list.document(r.envelope[r.list.from:r.decoder.InputOffset()])})
	return nil
}

// document returns an element with the declarations of what is around it, but for those that it has itself.
func (l *list) document(element []byte) []byte {
	name := bytes.IndexAny(element, " \t\r\n/>")
	b := bytes.NewBuffer(slices.Clone(element[:name]))
	for i, a := range l.scope {
		again := func(o xml.Attr) bool { return o.Name == a.Name }
		if a.Value == "" || slices.ContainsFunc(l.own, again) || slices.ContainsFunc(l.scope[i+1:], again) {
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

// declarations returns the declarations of namespaces of an element.
func declarations(t xml.StartElement) (list []xml.Attr) {
	for _, a := range t.Attr {
		if a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns" {
			list = append(list, a)
		}
	}
	return list
}

// inList returns where the text of an element belongs that is in a message that was found.
func (r *reader) inList(local string) *string {
	m := &r.message
	switch r.at(1) + "/" + local {
	case "smevMetadata/MessageId":
		return first(&m.ID)
	case "smevMetadata/OriginalMessageID", "smevMetadata/OriginalMessageId":
		return first(&m.Original)
	case "Message/messageType":
		return &r.texts[messageType]
	case "Message/status":
		return &r.texts[messageStatus]
	case "Message/fault":
		m.Kind = Refused
	case "ResponseContent/content":
		m.Kind = Response
	case "ResponseContent/rejects":
		m.Kind = Rejected
	case "ResponseContent/status":
		m.Kind = Status
	case "fault/code", "rejects/code", "status/code":
		return first(&m.Code)
	}
	return nil
}
