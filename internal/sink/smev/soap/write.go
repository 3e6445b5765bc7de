// Package soap writes calls of SMEV 3 and of the operator's adapter to it, and reads their answers: SOAP 1.1, document/literal, by the
// operator's WSDL and schemas, those of SMEV in the versions 1.1 to 1.3. It neither signs nor sends.
package soap

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	envelopeNS = "http://schemas.xmlsoap.org/soap/envelope/"
	typesNS    = "urn://x-artefacts-smev-gov-ru/services/message-exchange/types/"
	basicNS    = typesNS + "basic/"
	faultsNS   = typesNS + "faults/"

	adapterNS       = "urn://x-artefacts-smev-gov-ru/services/service-adapter/types"
	adapterFaultsNS = adapterNS + "/faults"
)

// Ids of the elements that are signed, as the operator's guidelines name them.
const (
	signedBy         = "SIGNED_BY_"
	SignedByConsumer = signedBy + "CONSUMER" // what a sender of requests has made
	SignedByCaller   = signedBy + "CALLER"   // parameters of another call
)

// Call is a call.
type Call struct {
	Method   string
	Envelope []byte
	SignedID string // of the element that a signature is about; the adapter signs itself
}

// Request is a request to a supplier of data, by SMEV itself or through the adapter.
type Request struct {
	ID      string    // the MessageID, or the client's id at the adapter
	NodeID  string    // "" for none
	EOL     time.Time // after which it is not to be delivered; zero for none
	Content []byte    // as Content returns it
	Test    bool

	References []Reference // attachments, by SMEV itself
	Files      []File      // attachments, through the adapter
	ITSystem   string      // the sender's mnemonic, through the adapter
}

// Reference is an attachment that lies in SMEV's storage of files.
type Reference struct {
	UUID           string `json:"uuid" xml:"b:uuid"` // by which it lies there
	Hash           string `json:"hash" xml:"b:Hash"` // in base64
	MimeType       string `json:"mimeType" xml:"b:MimeType"`
	SignaturePKCS7 string `json:"signaturePKCS7" xml:"b:SignaturePKCS7,omitempty"` // in base64; "" for none
}

// File is an attachment that lies in the storage of the adapter, which gives it to SMEV. Its names are the adapter's.
type File struct {
	ID             string `json:"id,omitempty" xml:"a:Id,omitempty"` // a UUID; "" for one of the adapter's
	FilePath       string `json:"filePath" xml:"a:filePath,omitempty"`
	PassportID     string `json:"passportId,omitempty" xml:"a:passportId,omitempty"`
	SignaturePKCS7 string `json:"signaturePKCS7,omitempty" xml:"a:SignaturePKCS7,omitempty"` // in base64
	TransferMethod string `json:"transferMethod,omitempty" xml:"a:TransferMethod,omitempty"` // MTOM or REFERENCE; "" for the adapter's choice
	Reusable       bool   `json:"reusableAttachment,omitempty" xml:"a:ReusableAttachment,omitempty"`
}

// How the adapter gives a file to SMEV.
const (
	TransferMTOM      = "MTOM"      // within the message
	TransferReference = "REFERENCE" // through SMEV's storage of files
)

// Selector says which responses GetResponse looks for: those of a root element, or any if it is zero.
type Selector struct{ Namespace, Element string }

// SendRequest returns the call that sends a request.
func SendRequest(version string, r Request) Call {
	return ofSMEV("SendRequest", version, SignedByConsumer, func(b *bytes.Buffer) {
		fmt.Fprintf(b, `<ns:SenderProvidedRequestData Id="%s">`, SignedByConsumer)
		element(b, "ns:MessageID", r.ID)
		element(b, "ns:NodeID", r.NodeID)
		element(b, "ns:EOL", r.endOfLife())
		b.WriteString("<b:MessagePrimaryContent>")
		b.Write(r.Content)
		b.WriteString("</b:MessagePrimaryContent>")
		list(b, "b:RefAttachmentHeader", r.References)
		if r.Test {
			b.WriteString("<ns:TestMessage/>")
		}
		b.WriteString("</ns:SenderProvidedRequestData>")
	})
}

// GetResponse returns the call that takes the next response of the caller's queue.
func GetResponse(version string, s Selector, nodeID string, now time.Time) Call {
	return ofSMEV("GetResponse", version, SignedByCaller, func(b *bytes.Buffer) {
		fmt.Fprintf(b, `<b:MessageTypeSelector Id="%s">`, SignedByCaller)
		if s != (Selector{}) {
			element(b, "b:NamespaceURI", s.Namespace)
			element(b, "b:RootElementLocalName", s.Element)
		}
		element(b, "b:Timestamp", timestamp(now))
		element(b, "b:NodeID", nodeID)
		b.WriteString("</b:MessageTypeSelector>")
	})
}

// Ack returns the call that takes a message off the caller's queue for good.
func Ack(version, messageID string) Call {
	return ofSMEV("Ack", version, SignedByCaller, func(b *bytes.Buffer) {
		fmt.Fprintf(b, `<b:AckTargetMessage Id="%s" accepted="true">`, SignedByCaller)
		escape(b, messageID)
		b.WriteString("</b:AckTargetMessage>")
	})
}

// Statistics returns the call that asks how many messages wait in the caller's queues, and changes nothing.
func Statistics(version, nodeID string, now time.Time) Call {
	return ofSMEV("GetIncomingQueueStatistics", version, SignedByCaller, func(b *bytes.Buffer) {
		element(b, "ns:NodeID", nodeID)
		fmt.Fprintf(b, `<b:Timestamp Id="%s">%s</b:Timestamp>`, SignedByCaller, timestamp(now))
	})
}

// AdapterSend returns the call that sends a request through the adapter.
func AdapterSend(r Request) Call {
	return ofAdapter("Send", "ClientMessage", r.ITSystem, func(b *bytes.Buffer) {
		b.WriteString("<a:RequestMessage><a:messageType>RequestMessageType</a:messageType><a:RequestMetadata>")
		element(b, "a:clientId", r.ID)
		element(b, "a:nodeId", r.NodeID)
		element(b, "a:eol", r.endOfLife())
		if r.Test {
			element(b, "a:testMessage", "true")
		}
		b.WriteString("</a:RequestMetadata><a:RequestContent><a:content><a:MessagePrimaryContent>")
		b.Write(r.Content)
		b.WriteString("</a:MessagePrimaryContent>")
		list(b, "a:AttachmentHeader", r.Files)
		b.WriteString("</a:content></a:RequestContent></a:RequestMessage>")
	})
}

// AdapterFind returns the call that asks the adapter for messages by the client's id of a request.
func AdapterFind(itSystem, clientID, criteria string) Call {
	return ofAdapter("Find", "FindMessageQuery", itSystem, func(b *bytes.Buffer) {
		b.WriteString("<a:specificQuery><a:messageClientIdCriteria>")
		element(b, "a:clientId", clientID)
		element(b, "a:clientIdCriteria", criteria)
		b.WriteString("</a:messageClientIdCriteria></a:specificQuery>")
	})
}

func (r *Request) endOfLife() string {
	if r.EOL.IsZero() {
		return ""
	}
	return r.EOL.UTC().Format(time.RFC3339)
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// ofSMEV returns a call of SMEV.
func ofSMEV(method, version, signed string, write func(*bytes.Buffer)) Call {
	spaces := fmt.Sprintf(`xmlns:ns="%s%s" xmlns:b="%s%[2]s"`, typesNS, version, basicNS)
	c := newCall(method, "ns:"+method+"Request", spaces, write)
	c.SignedID = signed
	return c
}

// ofAdapter returns a call of the adapter.
func ofAdapter(method, root, itSystem string, write func(*bytes.Buffer)) Call {
	return newCall(method, "a:"+root, `xmlns:a="`+adapterNS+`"`, func(b *bytes.Buffer) {
		element(b, "a:itSystem", itSystem)
		write(b)
	})
}

// newCall returns a call whose body has one element. SMEV refuses an envelope without a header.
func newCall(method, root, spaces string, write func(*bytes.Buffer)) Call {
	var b bytes.Buffer
	fmt.Fprintf(&b, xml.Header+`<soap:Envelope xmlns:soap="%s"><soap:Header/><soap:Body><%s %s>`, envelopeNS, root, spaces)
	write(&b)
	fmt.Fprintf(&b, `</%s></soap:Body></soap:Envelope>`, root)
	return Call{Method: method, Envelope: b.Bytes()}
}

// element writes an element with a text, unless that is empty.
func element(b *bytes.Buffer, name, text string) {
	if text == "" {
		return
	}
	b.WriteString("<" + name + ">")
	escape(b, text)
	b.WriteString("</" + name + ">")
}

// list writes a list of elements of one name, unless there are none.
func list[T any](b *bytes.Buffer, name string, items []T) {
	if len(items) == 0 {
		return
	}
	b.WriteString("<" + name + "List>")
	_ = xml.NewEncoder(b).EncodeElement(items, xml.StartElement{Name: xml.Name{Local: name}}) // a buffer takes everything
	b.WriteString("</" + name + "List>")
}

func escape(b *bytes.Buffer, text string) {
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
}

// Content returns the root element of a document, as it stands in the document, to be put into a request. The document
// has to be well-formed, in UTF-8, without a DTD, and its root element in a namespace.
func Content(document []byte) ([]byte, error) {
	text := bytes.TrimPrefix(document, []byte("\xef\xbb\xbf"))
	d := xml.NewDecoder(bytes.NewReader(text))
	depth, from, to := 0, int64(-1), int64(-1)
	for {
		at := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not well-formed XML in UTF-8: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return nil, fmt.Errorf("more than %d elements in each other", maxDepth)
			}
			if slices.ContainsFunc(t.Attr, func(a xml.Attr) bool { return strings.HasPrefix(a.Value, signedBy) }) {
				return nil, fmt.Errorf("an attribute begins with %s, as the Ids of what pacer has signed do", signedBy)
			}
			if depth > 1 {
				continue
			}
			if from >= 0 {
				return nil, errors.New("more than one root element")
			}
			// The decoder takes a prefix that is not declared for a namespace.
			declared := slices.ContainsFunc(t.Attr, func(a xml.Attr) bool { return declares(a) && a.Value == t.Name.Space })
			if t.Name.Space == "" || !declared || strings.HasPrefix(t.Name.Space, typesNS) {
				return nil, errors.New("the root element is in no namespace of its own; a request's is in the one of its kind of data")
			}
			from = at
		case xml.EndElement:
			if depth--; depth == 0 {
				to = d.InputOffset()
			}
		case xml.Directive:
			return nil, errors.New("a DTD is not allowed")
		}
	}
	if to < 0 {
		return nil, errors.New("no root element; the payload is to be an XML document")
	}
	return text[from:to], nil
}

// maxDepth bounds elements in each other.
const maxDepth = 1000

// declares reports whether an attribute declares a namespace.
func declares(a xml.Attr) bool {
	return a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns"
}
