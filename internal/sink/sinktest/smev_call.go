package sinktest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// smevCall is what a stand-in of SMEV reads of a call.
type smevCall struct {
	root, messageID, content, eol, target string
	attachments                           []string // by their UUIDs
	test, signed                          bool
}

// sequences are the elements that the operator's schemas allow in another, in their order. Those with a ! must be there.
var sequences = map[string][]string{
	"Envelope":                          {"Header", "Body!"},
	"SendRequestRequest":                {"SenderProvidedRequestData!", "AttachmentContentList", "CallerInformationSystemSignature"},
	"SenderProvidedRequestData":         {"MessageID!", "ReferenceMessageID", "TransactionCode", "NodeID", "EOL", "MessagePrimaryContent!", "PersonalSignature", "AttachmentHeaderList", "RefAttachmentHeaderList", "BusinessProcessMetadata", "TestMessage"},
	"GetResponseRequest":                {"MessageTypeSelector!", "CallerInformationSystemSignature"},
	"MessageTypeSelector":               {"NamespaceURI", "RootElementLocalName", "Timestamp!", "NodeID"},
	"AckRequest":                        {"AckTargetMessage!", "CallerInformationSystemSignature"},
	"RefAttachmentHeader":               {"uuid!", "Hash!", "MimeType!", "SignaturePKCS7"},
	"GetIncomingQueueStatisticsRequest": {"NodeID", "Timestamp!", "CallerInformationSystemSignature"},
}

// identified are the elements that need an Id.
var identified = []string{"SenderProvidedRequestData", "MessageTypeSelector", "AckTargetMessage"}

// basic are the elements of the namespace of basic types.
var basic = []string{"RefAttachmentHeaderList", "RefAttachmentHeader", "uuid", "Hash", "MimeType", "SignaturePKCS7", "MessagePrimaryContent", "MessageTypeSelector", "NamespaceURI", "RootElementLocalName", "AckTargetMessage", "Timestamp"}

// node is an element.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []node     `xml:",any"`
	Text     string     `xml:",chardata"`
	Inner    string     `xml:",innerxml"`
}

func (n *node) child(name string) *node {
	for i := range n.Children {
		if n.Children[i].XMLName.Local == name {
			return &n.Children[i]
		}
	}
	return &node{}
}

// readCall reads a call as the schemas of a version have it.
func readCall(envelope []byte, version string) (c smevCall, err error) {
	var root node
	d := xml.NewDecoder(bytes.NewReader(envelope))
	if err := d.Decode(&root); err != nil {
		return c, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return c, errors.New("something behind the envelope")
	}
	if root.XMLName != (xml.Name{Space: "http://schemas.xmlsoap.org/soap/envelope/", Local: "Envelope"}) || root.child("Header").XMLName.Local == "" {
		return c, errors.New("PoorSOAPEnvelopeFormat")
	}
	body := root.child("Body")
	if err := inOrder(&root, sequences); err != nil || len(body.Children) != 1 {
		return c, errors.Join(err, errors.New("not one element in the body"))
	}
	call := &body.Children[0]
	if err := valid(call, version); err != nil {
		return c, err
	}
	c.root = call.XMLName.Local
	c.signed = call.child("CallerInformationSystemSignature").XMLName.Local != ""
	c.target = call.child("AckTargetMessage").Text
	data := call.child("SenderProvidedRequestData")
	c.messageID, c.eol, c.test = data.child("MessageID").Text, data.child("EOL").Text, data.child("TestMessage").XMLName.Local != ""
	for _, header := range data.child("RefAttachmentHeaderList").Children {
		c.attachments = append(c.attachments, header.child("uuid").Text)
	}
	primary := data.child("MessagePrimaryContent")
	c.content = primary.Inner
	if c.root == "SendRequestRequest" && (len(primary.Children) != 1 || strings.HasPrefix(primary.Children[0].XMLName.Space, smevTypes) || primary.Children[0].XMLName.Space == "") {
		return c, errors.New("the content is not one element of another namespace")
	}
	return c, nil
}

// valid checks an element and those in it, but for contents and signatures.
func valid(n *node, version string) error {
	name := n.XMLName.Local
	space := smevTypes + version
	if slices.Contains(basic, name) {
		space = smevTypes + "basic/" + version
	}
	if n.XMLName.Space != space && (name != "NodeID" || !strings.HasPrefix(n.XMLName.Space, smevTypes)) {
		return fmt.Errorf("%s is in the namespace %q", name, n.XMLName.Space)
	}
	if slices.Contains(identified, name) && !slices.ContainsFunc(n.Attrs, func(a xml.Attr) bool { return a.Name.Local == "Id" && a.Value != "" }) {
		return fmt.Errorf("%s has no Id", name)
	}
	if name == "AckTargetMessage" && !slices.ContainsFunc(n.Attrs, func(a xml.Attr) bool { return a.Name.Local == "accepted" && a.Value == "true" }) {
		return errors.New("AckTargetMessage does not say whether it is accepted")
	}
	if _, known := sequences[name]; known {
		if err := inOrder(n, sequences); err != nil {
			return err
		}
	} else if name != "RefAttachmentHeaderList" { // of any number of headers
		return nil
	}
	for i := range n.Children {
		if child := &n.Children[i]; child.XMLName.Local != "CallerInformationSystemSignature" {
			if err := valid(child, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// inOrder checks which elements are in another, and their order.
func inOrder(n *node, schema map[string][]string) error {
	at := 0
	allowed := schema[n.XMLName.Local]
	for i := range n.Children {
		name := n.Children[i].XMLName.Local
		for at < len(allowed) && strings.TrimSuffix(allowed[at], "!") != name {
			if strings.HasSuffix(allowed[at], "!") {
				return fmt.Errorf("%s before %s in %s", name, allowed[at], n.XMLName.Local)
			}
			at++
		}
		if at == len(allowed) {
			return fmt.Errorf("%s is not allowed there in %s", name, n.XMLName.Local)
		}
		at++
	}
	for ; at < len(allowed); at++ {
		if strings.HasSuffix(allowed[at], "!") {
			return fmt.Errorf("no %s in %s", allowed[at], n.XMLName.Local)
		}
	}
	return nil
}
