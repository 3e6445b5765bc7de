package sinktest

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	adapterTypes = "urn://x-artefacts-smev-gov-ru/services/service-adapter/types"
	typeXML      = "text/xml; charset=utf-8"
)

// adapterSequences are the elements that the adapter's schema allows in another, as far as a request by a client's id has them.
var adapterSequences = map[string][]string{
	"Envelope":                {"Header", "Body!"},
	"ClientMessage":           {"itSystem!", "replyToQueue", "RequestMessage!"},
	"RequestMessage":          {"messageType", "RequestMetadata!", "RequestContent!"},
	"RequestMetadata":         {"clientId!", "linkedGroupIdentity", "createGroupIdentity", "nodeId", "eol", "testMessage", "TransactionCode", "BusinessProcessMetadata", "RoutingInformation"},
	"RequestContent":          {"content!", "originalContent"},
	"content":                 {"MessagePrimaryContent!", "PersonalSignature", "AttachmentHeaderList"},
	"AttachmentHeader":        {"Id", "filePath!", "passportId", "SignaturePKCS7", "TransferMethod", "ReusableAttachment", "Archive"},
	"FindMessageQuery":        {"itSystem!", "specificQuery!"},
	"specificQuery":           {"messageClientIdCriteria!"},
	"messageClientIdCriteria": {"clientId!", "clientIdCriteria!"},
}

func isSOAP(c *Call) bool { return strings.HasPrefix(c.Header.Get("Content-Type"), "text/xml") }

// handleSOAP answers a call of SOAP: one that is not by the schema with a fault that has no name, as its framework does.
func (a *Adapter) handleSOAP(c *Call) {
	var root node
	err := xml.NewDecoder(bytes.NewReader(c.Payload)).Decode(&root)
	body := root.child("Body")
	if err == nil && len(body.Children) != 1 {
		err = fmt.Errorf("%d elements in the body", len(body.Children))
	}
	if err != nil {
		a.faultSOAP(c, "", "Unmarshalling Error: "+err.Error())
		return
	}
	call := &body.Children[0]
	err = inOrder(&root, adapterSequences)
	if err == nil {
		err = validAdapter(call)
	}
	action := strings.Trim(c.Header.Get("SOAPAction"), `"`)
	switch {
	case err != nil:
		a.faultSOAP(c, "", "Unmarshalling Error: "+err.Error())
	case strings.TrimSuffix(c.Path, "/") != "/ws":
		c.Answer(404)
	case call.child("itSystem").Text != a.ItSystem:
		a.Fault(c, "ValidationFault", "no such itSystem")
	case call.XMLName.Local == "ClientMessage" && action == "urn:Send":
		a.sendSOAP(c, call)
	case call.XMLName.Local == "FindMessageQuery" && action == "urn:Find":
		criteria := call.child("specificQuery").child("messageClientIdCriteria")
		a.look(c, criteria.child("clientId").Text, criteria.child("clientIdCriteria").Text, func(found []adapterFound) { a.foundSOAP(c, found) })
	default:
		a.faultSOAP(c, "", "The given SOAPAction "+action+" does not match an operation.")
	}
}

// validAdapter checks an element and those in it, but for contents.
func validAdapter(n *node) error {
	if n.XMLName.Space != adapterTypes {
		return fmt.Errorf("%s is in the namespace %q", n.XMLName.Local, n.XMLName.Space)
	}
	if len(n.Text) > 50 && len(n.Children) == 0 && slices.Contains([]string{"itSystem", "clientId", "nodeId"}, n.XMLName.Local) {
		return fmt.Errorf("%s is longer than 50 characters", n.XMLName.Local)
	}
	if n.XMLName.Local == "MessagePrimaryContent" {
		if len(n.Children) != 1 || n.Children[0].XMLName.Space == adapterTypes || n.Children[0].XMLName.Space == "" {
			return fmt.Errorf("the content is not one element of another namespace")
		}
		return nil
	}
	if _, known := adapterSequences[n.XMLName.Local]; known {
		if err := inOrder(n, adapterSequences); err != nil {
			return err
		}
	} else if n.XMLName.Local != "AttachmentHeaderList" { // of any number of headers
		return nil
	}
	for i := range n.Children {
		if err := validAdapter(&n.Children[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *Adapter) sendSOAP(c *Call, call *node) {
	message := call.child("RequestMessage")
	meta := message.child("RequestMetadata")
	content := message.child("RequestContent").child("content")
	var files []AdapterFile
	for _, h := range content.child("AttachmentHeaderList").Children {
		files = append(files, AdapterFile{
			h.child("Id").Text, h.child("filePath").Text, h.child("passportId").Text, h.child("SignaturePKCS7").Text, h.child("TransferMethod").Text,
			h.child("ReusableAttachment").Text == "true",
		})
	}
	a.take(c, AdapterRequest{
		ClientID: meta.child("clientId").Text, At: time.Now(), Content: content.child("MessagePrimaryContent").Inner, Files: files,
		Test: meta.child("testMessage").Text == "true", NodeID: meta.child("nodeId").Text, EOL: meta.child("eol").Text,
	})
}

// faultSOAP answers with one of the adapter's faults, or with one that has no name.
func (a *Adapter) faultSOAP(c *Call, name, text string) {
	var b strings.Builder
	b.WriteString(`<soap:Fault><faultcode>soap:Server</faultcode><faultstring>`)
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything
	b.WriteString(`</faultstring>`)
	if name != "" {
		fmt.Fprintf(&b, `<detail><f:%[1]s xmlns:f="%[2]s/faults"><f:code>ADAPTER-1</f:code><f:description>`, name, adapterTypes)
		_ = xml.EscapeText(&b, []byte(text))
		fmt.Fprintf(&b, `</f:description></f:%s></detail>`, name)
	}
	b.WriteString(`</soap:Fault>`)
	c.Text(500, typeXML, envelopeOf(b.String()))
}

// envelopeOf returns an envelope whose declarations of namespaces are around what is in it, as a framework writes them.
func envelopeOf(body string) string {
	return `<?xml version='1.0' encoding='UTF-8'?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">` +
		`<soap:Body xmlns="` + adapterTypes + `" xmlns:q="urn://example/1.0">` + body + `</soap:Body></soap:Envelope>`
}

func (a *Adapter) acceptedSOAP(clientID string) string {
	return envelopeOf(`<MessageResult><itSystem>` + a.ItSystem + `</itSystem><MessageId>` + messageIDOf(clientID) + `</MessageId></MessageResult>`)
}

func (a *Adapter) foundSOAP(c *Call, found []adapterFound) {
	var b strings.Builder
	for _, f := range found {
		b.WriteString(f.xml())
	}
	text := envelopeOf(`<QueryResultList>` + b.String() + `</QueryResultList>`)
	if a.options.Parts == 0 {
		c.Text(200, typeXML, text)
		return
	}
	body := "--b\r\nContent-Type: application/xop+xml; type=\"text/xml\"\r\nContent-ID: <root@adapter>\r\n\r\n" + text
	for n := 1; n < a.options.Parts; n++ {
		body += fmt.Sprintf("\r\n--b\r\nContent-Type: application/octet-stream\r\nContent-ID: <part%d@adapter>\r\n\r\nsignature", n)
	}
	c.Text(200, `multipart/related; type="application/xop+xml"; boundary="b"; start="<root@adapter>"; start-info="text/xml"`, body+"\r\n--b--\r\n")
}

func (f adapterFound) xml() string {
	client := f.of.ClientID
	if f.reply == nil {
		return `<QueryResult><smevMetadata><MessageId>` + messageIDOf(client) + `</MessageId></smevMetadata><Message xsi:type="RequestMessageType">` +
			`<RequestMetadata><clientId>` + client + `</clientId></RequestMetadata><RequestContent><content><MessagePrimaryContent>` + f.of.Content +
			`</MessagePrimaryContent></content></RequestContent></Message></QueryResult>`
	}
	about := `<ResponseMetadata><clientId>c</clientId><replyToClientId>` + client + `</replyToClientId></ResponseMetadata><ResponseContent>`
	kind, text := "ResponseMessageType", about+`<content><MessagePrimaryContent><q:Response><fault>of the content</fault></q:Response></MessagePrimaryContent></content></ResponseContent>`
	code := `<code>` + f.reply.Code + `</code><description>no</description>`
	switch f.reply.Kind {
	case "RequestRejected":
		text = about + `<rejects>` + code + `</rejects></ResponseContent>`
	case "RequestStatus":
		text = about + `<status>` + code + `</status></ResponseContent>`
	case "AsyncProcessingStatus":
		kind = "ErrorMessage"
		text = `<statusMetadata><clientId>c</clientId><originalClientId>` + client + `</originalClientId></statusMetadata><status>ERROR</status><details>no</details>` +
			`<type>CLIENT</type><fault><f:code xmlns:f="` + adapterTypes + `/faults">` + f.reply.Code + `</f:code></fault>`
	}
	return `<QueryResult><smevMetadata><MessageId>` + f.id() + `</MessageId><OriginalMessageID>` + messageIDOf(client) + `</OriginalMessageID></smevMetadata>` +
		`<Message xsi:type="` + kind + `"><messageType>PrimaryMessage</messageType>` + text + `</Message></QueryResult>`
}
