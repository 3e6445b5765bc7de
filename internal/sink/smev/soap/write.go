// Package soap writes the requests of SMEV 3 and reads its answers: SOAP 1.1, by the operator's WSDL and schemas of the
// versions 1.1 to 1.3. It neither signs nor sends.
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
)

// Ids of the elements that are signed, as the operator's guidelines name them.
const (
	signedBy         = "SIGNED_BY_"
	SignedByConsumer = signedBy + "CONSUMER" // what a sender of requests has made
	SignedByCaller   = signedBy + "CALLER"   // parameters of another call
)

// Call is a call of SMEV.
type Call struct {
	Action   string // SOAPAction, without its quotes
	Envelope []byte
	SignedID string // of the element that a signature is about
}

// Request is a request to a supplier of data.
type Request struct {
	MessageID string
	NodeID    string    // "" for none
	EOL       time.Time // after which it is not to be delivered; zero for none
	Content   []byte    // as Content returns it
	Test      bool
	// References are attachments.
	References []Reference
}

// Selector says which responses GetResponse looks for: those of a root element, or any if it is zero.
type Selector struct{ Namespace, Element string }

// SendRequest returns the call that sends a request.
func SendRequest(version string, r Request) Call {
	b := begin("SendRequestRequest", version)
	fmt.Fprintf(b, `<ns:SenderProvidedRequestData Id="%s">`, SignedByConsumer)
	element(b, "ns:MessageID", r.MessageID)
	element(b, "ns:NodeID", r.NodeID)
	if !r.EOL.IsZero() {
		element(b, "ns:EOL", r.EOL.UTC().Format(time.RFC3339))
	}
	b.WriteString("<b:MessagePrimaryContent>")
	b.Write(r.Content)
	b.WriteString("</b:MessagePrimaryContent>")
	list(b, "b:RefAttachmentHeader", r.References)
	if r.Test {
		b.WriteString("<ns:TestMessage/>")
	}
	b.WriteString("</ns:SenderProvidedRequestData>")
	return end(b, "SendRequest", SignedByConsumer)
}

// GetResponse returns the call that takes the next response of the caller's queue.
func GetResponse(version string, s Selector, nodeID string, now time.Time) Call {
	b := begin("GetResponseRequest", version)
	fmt.Fprintf(b, `<b:MessageTypeSelector Id="%s">`, SignedByCaller)
	if s != (Selector{}) {
		element(b, "b:NamespaceURI", s.Namespace)
		element(b, "b:RootElementLocalName", s.Element)
	}
	element(b, "b:Timestamp", timestamp(now))
	element(b, "b:NodeID", nodeID)
	b.WriteString("</b:MessageTypeSelector>")
	return end(b, "GetResponse", SignedByCaller)
}

// Ack returns the call that takes a message off the caller's queue for good.
func Ack(version, messageID string) Call {
	b := begin("AckRequest", version)
	fmt.Fprintf(b, `<b:AckTargetMessage Id="%s" accepted="true">`, SignedByCaller)
	escape(b, messageID)
	b.WriteString("</b:AckTargetMessage>")
	return end(b, "Ack", SignedByCaller)
}

// Statistics returns the call that asks how many messages wait in the caller's queues, and changes nothing.
func Statistics(version, nodeID string, now time.Time) Call {
	b := begin("GetIncomingQueueStatisticsRequest", version)
	element(b, "ns:NodeID", nodeID)
	fmt.Fprintf(b, `<b:Timestamp Id="%s">%s</b:Timestamp>`, SignedByCaller, timestamp(now))
	return end(b, "GetIncomingQueueStatistics", SignedByCaller)
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// begin begins an envelope. SMEV refuses one without a header.
func begin(root, version string) *bytes.Buffer {
	b := bytes.NewBufferString(xml.Header)
	fmt.Fprintf(b, `<soap:Envelope xmlns:soap="%s"><soap:Header/><soap:Body><ns:%s xmlns:ns="%s%s" xmlns:b="%s%s">`,
		envelopeNS, root, typesNS, version, basicNS, version)
	return b
}

func end(b *bytes.Buffer, method, signed string) Call {
	root := method + "Request"
	fmt.Fprintf(b, `</ns:%s></soap:Body></soap:Envelope>`, root)
	return Call{Action: "urn:" + method, Envelope: b.Bytes(), SignedID: signed}
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
