package soap

import (
	"cmp"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestContent(t *testing.T) {
	for document, want := range map[string]string{
		`<a xmlns="urn:x"/>`: `<a xmlns="urn:x"/>`,
		"\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- c --><p:a xmlns:p='urn:x'>&lt;<p:b/></p:a>\n": `<p:a xmlns:p='urn:x'>&lt;<p:b/></p:a>`,

		``:                                     "no root element",
		`hello`:                                "no root element",
		`<a/>`:                                 "in no namespace",
		`<p:a/>`:                               "in no namespace",
		`<a xmlns=""/>`:                        "in no namespace",
		`<a xmlns="urn:x">`:                    "not well-formed",
		`<a xmlns="urn:x"/></b>`:               "not well-formed",
		`<a xmlns="urn:x"/><b xmlns="urn:x"/>`: "more than one root",
		`<a xmlns="urn:x">&e;</a>`:             "not well-formed",
		`<!DOCTYPE a [<!ENTITY e "x">]><a xmlns="urn:x">&e;</a>`:                "a DTD",
		`<?xml version="1.0" encoding="windows-1251"?><a xmlns="urn:x"/>`:       "not well-formed",
		"<a xmlns=\"urn:x\">\xff</a>":                                           "not well-formed",
		`<a xmlns="` + basicNS + `1.3"/>`:                                       "in no namespace",
		`<a xmlns="urn:x"><b Id="SIGNED_BY_CONSUMER"/></a>`:                     "begins with SIGNED_BY_",
		`<a xmlns="urn:x"><b ID="&#83;IGNED_BY_CALLER"/></a>`:                   "begins with SIGNED_BY_",
		`<a xmlns="urn:x">` + strings.Repeat("<b>", 2000):                       "elements in each other",
		`</b:MessagePrimaryContent><b:MessagePrimaryContent><a xmlns="urn:x"/>`: "not well-formed",
	} {
		got, err := Content([]byte(document))
		if err == nil && string(got) != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %q, %v, want %q", document, got, err, want)
		}
	}
}

// TestCalls: every call reads as what it is, with any texts in it.
func TestCalls(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 123_456_789, time.FixedZone("", 3*3600))
	request := Request{ID: `"'<`, ITSystem: "<&>", NodeID: `"'<&`, EOL: now, Content: []byte(`<a xmlns="urn:x"/>`), Test: true}
	calls := map[string][]Call{"/service-adapter/types": {AdapterSend(request), AdapterFind("<&>", `"'<`, "c&")}}
	for _, version := range []string{"1.1", "1.2", "1.3"} {
		calls["/types/"+version] = []Call{
			SendRequest(version, request), GetResponse(version, Selector{Namespace: "urn:&", Element: "A"}, "n&", now), GetResponse(version, Selector{}, "", now),
			Ack(version, "<id>"), Statistics(version, "", now),
		}
	}
	roots := map[string]string{"Send": "ClientMessage", "Find": "FindMessageQuery"}
	for space, list := range calls {
		for _, c := range list {
			said, err := Read(c.Envelope)
			text, root := string(c.Envelope), cmp.Or(roots[c.Method], c.Method+"Request")
			if err != nil || !said.Whole || said.Root != root || !strings.Contains(text, space+`"`) || c.SignedID != "" && !strings.Contains(text, ` Id="`+c.SignedID+`"`) {
				t.Errorf("%s reads as %+v, %v", text, said, err)
			}
			if (c.SignedID == "") != (roots[c.Method] != "" && strings.Contains(text, "<a:itSystem>&lt;&amp;&gt;</a:itSystem>")) {
				t.Errorf("%s signs %q", text, c.SignedID)
			}
		}
	}
	text := string(GetResponse("1.3", Selector{}, "", now).Envelope)
	if !strings.Contains(text, ">2026-11-23T05:00:00.123Z<") || strings.Contains(text, "NodeID") || strings.Contains(text, "NamespaceURI") {
		t.Error(text)
	}
	bare := string(AdapterSend(Request{ITSystem: "a", ID: "b", Content: []byte(`<a xmlns="urn:x"/>`)}).Envelope)
	if strings.Contains(bare, "nodeId") || strings.Contains(bare, "eol") || strings.Contains(bare, "testMessage") {
		t.Error(bare)
	}
}

func enveloped(body string) string {
	return `<?xml version="1.0"?><s:Envelope xmlns:s="` + envelopeNS + `"><s:Header><Body><Fault/></Body></s:Header><s:Body>` + body + `</s:Body></s:Envelope>`
}

func fault(detail string) string {
	return enveloped(`<s:Fault><faultcode>s:Server</faultcode><faultstring>no SMEV-600 here</faultstring>` + detail + `</s:Fault>`)
}

func response(inside string) string {
	return enveloped(`<GetResponseResponse><ResponseMessage><Response><OriginalMessageId>o</OriginalMessageId><SenderProvidedResponseData><MessageID> m </MessageID>` +
		inside + `</SenderProvidedResponseData><MessageMetadata><MessageId>other</MessageId></MessageMetadata></Response></ResponseMessage></GetResponseResponse>`)
}

func TestRead(t *testing.T) {
	const f = `xmlns:f="` + faultsNS + `1.2"`
	for text, want := range map[string]Answer{
		enveloped(`<SendRequestResponse/>`):                                               {Root: "SendRequestResponse", Whole: true},
		strings.TrimSuffix(enveloped(`<SendRequestResponse/>`), "</s:Body></s:Envelope>"): {Root: "SendRequestResponse"},
		enveloped(``):                            {},
		`<a/>`:                                   {},
		`HTTP is not XML`:                        {},
		``:                                       {},
		`<Envelope><Body><A/></Body></Envelope>`: {},

		fault(`<detail><f:MessageIsAlreadySent ` + f + `/></detail>`):                                                   {Root: "Fault", Fault: Fault{Name: "MessageIsAlreadySent"}, Whole: true},
		fault(`<detail><f:AccessDenied ` + f + `><Code>c</Code><Description>d</Description></f:AccessDenied></detail>`): {Root: "Fault", Fault: Fault{Name: "AccessDenied", Code: "c"}, Whole: true},
		fault(`<detail><f:SignatureVerificationFault ` + f + `><f:SignatureVerificationFault>CertificateIsExpired</f:SignatureVerificationFault></f:SignatureVerificationFault></detail>`): {
			Root: "Fault", Fault: Fault{Name: "SignatureVerificationFault", Code: "CertificateIsExpired"}, Whole: true,
		},
		fault(``): {Root: "Fault", Fault: Fault{Name: "DestinationOverflow", Code: "SMEV-600"}, Whole: true},
		fault(`<detail><x:AccessDenied xmlns:x="urn:other"/></detail>`): {Root: "Fault", Fault: Fault{Name: "DestinationOverflow", Code: "SMEV-600"}, Whole: true},

		enveloped(`<GetResponseResponse/>`): {Root: "GetResponseResponse", Whole: true},
		response(`<MessagePrimaryContent><RequestRejected><MessageID>x</MessageID></RequestRejected></MessagePrimaryContent>`): {
			Root: "GetResponseResponse", Message: &Message{ID: "m", Original: "o", Kind: Response}, Whole: true,
		},
		response(`<RequestRejected><RejectionReasonCode>NO_DATA</RejectionReasonCode><RejectionReasonDescription>d</RejectionReasonDescription></RequestRejected><RequestRejected><RejectionReasonCode>FAILURE</RejectionReasonCode></RequestRejected>`): {
			Root: "GetResponseResponse", Message: &Message{ID: "m", Original: "o", Kind: Rejected, Code: "NO_DATA"}, Whole: true,
		},
		response(`<RequestStatus><StatusCode>3</StatusCode><StatusDescription>d</StatusDescription></RequestStatus>`): {
			Root: "GetResponseResponse", Message: &Message{ID: "m", Original: "o", Kind: Status, Code: "3"}, Whole: true,
		},
		response(`<AsyncProcessingStatus><OriginalMessageId>other</OriginalMessageId><StatusCategory>requestIsRejectedBySmev</StatusCategory><SmevFault><Code>SMEV-1</Code></SmevFault></AsyncProcessingStatus>`): {
			Root: "GetResponseResponse", Message: &Message{ID: "m", Original: "o", Kind: Refused, Code: "SMEV-1"}, Whole: true,
		},
		response(`<AsyncProcessingStatus><StatusCategory>underProcessing</StatusCategory><StatusDetails>d</StatusDetails></AsyncProcessingStatus>`): {
			Root: "GetResponseResponse", Message: &Message{ID: "m", Original: "o", Kind: Progress, Code: "underProcessing"}, Whole: true,
		},
		response(`<SomethingNew/>`): {Root: "GetResponseResponse", Message: &Message{ID: "m", Original: "o", Kind: Progress}, Whole: true},

		enveloped(`<s:Fault><faultcode>s:Server</faultcode></s:Fault>`):                              {Root: "Fault", Fault: Fault{Code: "SOAP fault"}, Whole: true},
		enveloped(`<MessageResult><itSystem>a</itSystem><MessageId> m </MessageId></MessageResult>`): {Root: "MessageResult", Whole: true, MessageID: "m"},
		fault(`<detail><f:ValidationFault xmlns:f="` + adapterFaultsNS + `"><f:code>c</f:code><f:description>d</f:description></f:ValidationFault></detail>`): {
			Root: "Fault", Fault: Fault{Name: ValidationFault, Code: "c"}, Whole: true,
		},
		enveloped(`<QueryResultList/>`): {Root: "QueryResultList", Whole: true},
	} {
		got, err := Read([]byte(text))
		if !reflect.DeepEqual(got, want) || (err == nil) != (want.Whole && want.Root != "") {
			t.Errorf("%.300s\nreads as %+v %+v, %v", text, got, got.Message, err)
		}
	}
	if got, err := Read([]byte(enveloped(strings.Repeat("<a>", 100_000)))); err == nil || got.Root != "a" || got.Whole {
		t.Errorf("%+v, %v", got, err)
	}
	long, _ := Read([]byte(enveloped(`<s:Fault><detail><x><Code>` + strings.Repeat("я", 100_000) + `</Code></x></detail></s:Fault>`)))
	if n := len(long.Fault.Code); n == 0 || n > 2*maxText {
		t.Errorf("a text of %d bytes is kept", n)
	}
}

func TestXML(t *testing.T) {
	const boundary = `multipart/related; boundary=b; type="application/xop+xml"; `
	part := func(id, text string) string { return "--b\r\nContent-ID: " + id + "\r\n\r\n" + text + "\r\n" }
	for _, c := range []struct {
		kind, body, want string
		bare             bool
	}{
		{"text/xml", "<a/>", "<a/>", true},
		{"", "<a/>", "<a/>", true},
		{";;", "<a/>", "<a/>", true},
		{boundary, part("<x>", "<a/>") + "--b--", "<a/>", true},
		{boundary + `start="<y>"`, part("<x>", "file") + part("<y>", "<a/>") + "--b--", "<a/>", false},
		{boundary + `start*0="<y@"; start*1="z>"`, part("<x>", "file") + part("<y@z>", "<a/>") + "--b--", "<a/>", false},
		{boundary + `start="<none>"`, part("<x>", "<a/>") + part("<y>", "file") + "--b--", "<a/>", false},
		{boundary, "--b\r\n\r\n<a>", "<a>", true}, // cut off
		{boundary, "", "", false},
	} {
		got, bare, err := XML(c.kind, []byte(c.body))
		if string(got) != c.want || bare != c.bare || (err == nil) != (c.want != "") {
			t.Errorf("%s %q: %q, %t, %v", c.kind, c.body, got, bare, err)
		}
	}
}

// TestFound: what a message that the adapter has found says of its request.
func TestFound(t *testing.T) {
	for message, want := range map[string]Message{
		`<ResponseContent><content><MessagePrimaryContent><fault/></MessagePrimaryContent></content></ResponseContent>`: {Kind: Response},
		`<ResponseContent><rejects><code>NO_DATA</code><description>d</description></rejects><rejects><code>FAILURE</code></rejects></ResponseContent>`: {
			Kind: Rejected, Code: "NO_DATA",
		},
		`<ResponseContent><status><code>3</code></status></ResponseContent>`:                   {Kind: Status, Code: "3"},
		`<status>ERROR</status><fault><code>SMEV-1</code><description>d</description></fault>`: {Kind: Refused, Code: "SMEV-1"},
		`<messageType>ErrorMessage</messageType>`:                                              {Kind: Refused},
		`<status>OTHER</status><details>sent</details>`:                                        {},
		`<RequestContent><content><MessagePrimaryContent/></content></RequestContent>`:         {},
	} {
		got, err := Read([]byte(enveloped(`<QueryResultList><QueryResult><smevMetadata><MessageId> m </MessageId><OriginalMessageID>o</OriginalMessageID></smevMetadata><Message>` +
			message + `</Message></QueryResult></QueryResultList>`)))
		if want.ID, want.Original = "m", "o"; err != nil || !got.Whole || len(got.Found) != 1 || got.Found[0].Message() != want {
			t.Errorf("%s\nreads as %+v, %v", message, got, err)
		}
	}
}

// TestDocument: a message that is cut out of an answer means what it meant there.
func TestDocument(t *testing.T) {
	const around = `<s:Envelope xmlns:s="` + envelopeNS + `" xmlns:p="urn:a" xmlns:i="urn:i&amp;"><s:Body xmlns="urn:b" xmlns:p="urn:p"><QueryResultList xmlns:own="urn:l">`
	for inside, want := range map[string]string{
		`<QueryResult><p:x i:y="1"/></QueryResult>`:                   `<QueryResult xmlns:s="` + envelopeNS + `" xmlns:i="urn:i&amp;" xmlns="urn:b" xmlns:p="urn:p" xmlns:own="urn:l"><p:x i:y="1"/></QueryResult>`,
		`<QueryResult xmlns="" xmlns:own='urn:m' ><x/></QueryResult>`: `<QueryResult xmlns:s="` + envelopeNS + `" xmlns:i="urn:i&amp;" xmlns:p="urn:p" xmlns="" xmlns:own='urn:m' ><x/></QueryResult>`,
		`<p:QueryResult/>`: `<p:QueryResult xmlns:s="` + envelopeNS + `" xmlns:i="urn:i&amp;" xmlns="urn:b" xmlns:p="urn:p" xmlns:own="urn:l"/>`,
	} {
		got, err := Read([]byte(around + " " + inside + "\n" + inside + `</QueryResultList></s:Body></s:Envelope>`))
		if err != nil || len(got.Found) != 2 || string(got.Found[0].Document) != want || string(got.Found[1].Document) != want {
			t.Errorf("%s: %+v, %v", inside, got.Found, err)
		}
	}
}
