package sinktest

import (
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// SMEV stands in for SMEV 3 itself, by the operator's WSDL and schemas: SendRequest, GetResponse, Ack and
// GetIncomingQueueStatistics. It refuses what SMEV would refuse, lets a supplier of data answer, gives responses that are
// not acknowledged once more, and counts.
type SMEV struct {
	*Server
	options SMEVOptions

	mu       sync.Mutex
	requests []SMEVRequest  // that were registered, in order
	known    map[string]int // SendRequest by MessageID, whatever became of it
	queue    []*queued      // responses
	made     int            // of these, for their ids
	acks     map[string]int // by the response's MessageID, whatever became of them
}

// SMEVOptions are how a stand-in behaves. The zero value is SMEV with a supplier that answers at once.
type SMEVOptions struct {
	Plain   bool   // without TLS
	Version string // of the contract; 1.3
	// Treat, if set, is asked for each SendRequest that is in order, before it is registered; n counts those with its
	// MessageID, from 1. It answers, or returns false.
	Treat func(c *Call, r SMEVRequest, n int) (treated bool)
	// Deaf, if set, returns true for requests to register and not answer.
	Deaf func(r SMEVRequest, n int) bool
	// Supplier, if set, says what becomes of a request; nil: one response, at once.
	Supplier func(r SMEVRequest) []SMEVReply
	// Files are the sizes of the attachments that lie in SMEV's storage, by their UUIDs, and Space, if set, is how many bytes of
	// them requests may have in all: others are refused with QuoteLimitExceeded.
	Files map[string]int64
	Space int64
	// Redeliver is after how long a response that is not acknowledged is given once more; a minute.
	Redeliver time.Duration
	// Multipart has GetResponse answer with multipart/related, Reverse with the latest response first.
	Multipart, Reverse bool
	// Acked, if set, is called with each Ack that takes a response off the queue.
	Acked func(messageID string)
	// Signed refuses calls without a signature.
	Signed bool
}

// SMEVRequest is a request that was sent.
type SMEVRequest struct {
	MessageID string
	At        time.Time
	Content   string // XML
	Test      bool
	EOL       string
	// Attachments are the UUIDs of the files that go with it.
	Attachments []string
}

// SMEVReply is what becomes of a request, after a while: one of the kinds of what GetResponse returns.
type SMEVReply struct {
	After time.Duration
	Kind  string // MessagePrimaryContent, RequestRejected, RequestStatus, AsyncProcessingStatus
	Code  string
}

// queued is a response in the queue.
type queued struct {
	id, original string
	reply        SMEVReply
	from         time.Time // when it may be given
	acked        bool
}

const smevTypes = "urn://x-artefacts-smev-gov-ru/services/message-exchange/types/"

// StartSMEV starts a stand-in.
func StartSMEV(t testing.TB, o SMEVOptions) *SMEV {
	t.Helper()
	if o.Version == "" {
		o.Version = "1.3"
	}
	if o.Redeliver == 0 {
		o.Redeliver = time.Minute
	}
	s := &SMEV{options: o, known: map[string]int{}, acks: map[string]int{}}
	protocol := TLS
	if o.Plain {
		protocol = Plain
	}
	s.Server = Start(t, protocol, Options{}, s.handle)
	s.URL = strings.TrimSuffix(s.URL, "/deliver") + "/smev/v" + o.Version + "/ws"
	return s
}

// Requests returns the requests that were registered, in order.
func (s *SMEV) Requests() []SMEVRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Sent returns how often each MessageID was sent.
func (s *SMEV) Sent() map[string]int { return s.copied(&s.known) }

// Acks returns how often each response was acknowledged.
func (s *SMEV) Acks() map[string]int { return s.copied(&s.acks) }

func (s *SMEV) copied(m *map[string]int) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(*m)
}

// Waiting returns how many responses are not acknowledged.
func (s *SMEV) Waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queue {
		if !q.acked {
			n++
		}
	}
	return n
}

// LoseAcks has SMEV give all responses again that it has given, as after a restore of its queue.
func (s *SMEV) LoseAcks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queue {
		q.acked, q.from = false, time.Time{}
	}
}

func (s *SMEV) handle(c *Call) {
	action := strings.Trim(c.Header.Get("SOAPAction"), `"`)
	call, err := readCall(c.Payload, s.options.Version)
	switch {
	case !strings.HasPrefix(c.Header.Get("Content-Type"), "text/xml"):
		c.Answer(415)
		return
	case err != nil:
		s.fault(c, "", "cvc: "+err.Error())
		return
	case action != "urn:"+strings.TrimSuffix(call.root, "Request"):
		s.fault(c, "", "SOAPAction does not fit")
		return
	case s.options.Signed && !call.signed:
		s.fault(c, "SignatureVerificationFault", "<f:SignatureVerificationFault>NoSignatureFound</f:SignatureVerificationFault>")
		return
	}
	switch call.root {
	case "SendRequestRequest":
		s.send(c, call)
	case "GetResponseRequest":
		s.get(c, call)
	case "AckRequest":
		s.ack(c, call)
	case "GetIncomingQueueStatisticsRequest":
		s.reply(c, `<ns:GetIncomingQueueStatisticsResponse><ns:QueueStatistics queueName="responses" pendingMessageNumber="0"/></ns:GetIncomingQueueStatisticsResponse>`)
	default:
		s.fault(c, "", "no such operation")
	}
}

// Fault answers with one of the faults of the operator's schema.
func (s *SMEV) Fault(c *Call, name string, header ...string) { s.fault(c, name, "", header...) }

// fault answers with a fault: its name, and what is in it, or a text if it has no name.
func (s *SMEV) fault(c *Call, name, text string, header ...string) {
	var b strings.Builder
	b.WriteString(`<soap:Fault><faultcode>soap:Server</faultcode><faultstring>`)
	if name == "" {
		_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything
		b.WriteString(`</faultstring></soap:Fault>`)
	} else {
		fmt.Fprintf(&b, `%[1]s</faultstring><detail><f:%[1]s xmlns:f="%[2]sfaults/%[3]s">%[4]s</f:%[1]s></detail></soap:Fault>`, name, smevTypes, s.options.Version, text)
	}
	c.Text(500, "text/xml; charset=utf-8", s.envelope(b.String()), header...)
}

func (s *SMEV) reply(c *Call, body string) { c.Text(200, "text/xml; charset=utf-8", s.envelope(body)) }

func (s *SMEV) envelope(body string) string {
	return fmt.Sprintf(`<?xml version='1.0' encoding='UTF-8'?><soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body `+
		`xmlns:ns="%[1]s%[2]s" xmlns:b="%[1]sbasic/%[2]s">%[3]s</soap:Body></soap:Envelope>`, smevTypes, s.options.Version, body)
}

// Text answers with a body of that type.
func (c *Call) Text(status int, contentType, body string, header ...string) {
	c.Begin(status, append([]string{"Content-Type", contentType, "Content-Length", fmt.Sprint(len(body))}, header...)...)
	_ = c.Body([]byte(body))
	c.End()
}

// Accept answers as SMEV does when it has taken a request for checking.
func (s *SMEV) Accept(c *Call, messageID string) {
	c.Text(200, "text/xml; charset=utf-8", s.Accepted(messageID))
}

// Accepted returns that answer.
func (s *SMEV) Accepted(messageID string) string {
	return s.envelope(`<ns:SendRequestResponse><ns:MessageMetadata Id="SIGNED_BY_SMEV"><ns:MessageId>` + messageID + `</ns:MessageId><ns:MessageType>REQUEST</ns:MessageType>` +
		`<ns:Status>requestIsQueued</ns:Status></ns:MessageMetadata></ns:SendRequestResponse>`)
}

// send is SendRequest.
func (s *SMEV) send(c *Call, call smevCall) {
	now := time.Now()
	r := SMEVRequest{MessageID: call.messageID, At: now, Content: call.content, Test: call.test, EOL: call.eol, Attachments: call.attachments}
	if !lowerUUID.MatchString(r.MessageID) {
		s.fault(c, "InvalidMessageIdFormat", "<b:Code xmlns:b=\""+smevTypes+"basic/"+s.options.Version+"\">SMEV-300</b:Code>")
		return
	}
	if age := now.Sub(uuidTime(r.MessageID)); age > 48*time.Hour || age < -time.Minute {
		s.fault(c, "StaleMessageId", "")
		return
	}
	s.mu.Lock()
	s.known[r.MessageID]++
	n := s.known[r.MessageID]
	s.mu.Unlock()
	if s.options.Treat != nil && s.options.Treat(c, r, n) {
		return
	}
	if fault := s.Register(r); fault != "" {
		text := ""
		if fault == "QuoteLimitExceeded" {
			text = fmt.Sprintf("<f:RemainedTotalQuoteSize>%d</f:RemainedTotalQuoteSize><f:RealTotalAttachmentSize>%d</f:RealTotalAttachmentSize>",
				s.options.Space-s.size(s.Requests()...), s.size(r))
		}
		s.fault(c, fault, text)
		return
	}
	if s.options.Deaf != nil && s.options.Deaf(r, n) {
		c.Hang()
		return
	}
	s.Accept(c, r.MessageID)
}

// Register takes a request, or returns the fault that it is refused with.
func (s *SMEV) Register(r SMEVRequest) (fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.requests, func(o SMEVRequest) bool { return o.MessageID == r.MessageID }) {
		return "MessageIsAlreadySent"
	}
	if s.options.Space > 0 && s.size(s.requests...)+s.size(r) > s.options.Space {
		return "QuoteLimitExceeded"
	}
	s.requests = append(s.requests, r)
	replies := []SMEVReply{{Kind: "MessagePrimaryContent"}}
	if s.options.Supplier != nil {
		replies = s.options.Supplier(r)
	}
	for _, reply := range replies {
		s.made++
		s.queue = append(s.queue, &queued{
			id: fmt.Sprintf("%08x-0000-11f0-8000-000000000001", s.made), original: r.MessageID, reply: reply, from: r.At.Add(reply.After),
		})
	}
	return ""
}

// size returns how many bytes the attachments of requests have.
func (s *SMEV) size(requests ...SMEVRequest) (n int64) {
	for _, r := range requests {
		for _, id := range r.Attachments {
			n += s.options.Files[id]
		}
	}
	return n
}

// get is GetResponse.
func (s *SMEV) get(c *Call, call smevCall) {
	q := s.nextResponse(time.Now())
	if q == nil {
		s.reply(c, `<ns:GetResponseResponse/>`)
		return
	}
	body := s.envelope(`<ns:GetResponseResponse><ns:ResponseMessage><ns:Response Id="SIGNED_BY_SMEV"><ns:OriginalMessageId>` + q.original +
		`</ns:OriginalMessageId><ns:SenderProvidedResponseData Id="SIGNED_BY_CALLER"><ns:MessageID>` + q.id + `</ns:MessageID><ns:To>dummy</ns:To>` +
		content(q) + `</ns:SenderProvidedResponseData><ns:MessageMetadata><ns:MessageId>` + q.id +
		`</ns:MessageId><ns:MessageType>RESPONSE</ns:MessageType></ns:MessageMetadata></ns:Response></ns:ResponseMessage></ns:GetResponseResponse>`)
	if !s.options.Multipart {
		c.Text(200, "text/xml; charset=utf-8", body)
		return
	}
	// As captured from SMEV: without attachments too, and with the parameter start in two pieces.
	c.Text(200, `multipart/related; type="application/xop+xml"; boundary="uuid:b1"; start*0="<root.message@"; start*1="smev>"; start-info="text/xml"`,
		"\r\n--uuid:b1\r\nContent-Type: application/xop+xml; charset=UTF-8; type=\"text/xml\"\r\nContent-Transfer-Encoding: binary\r\n"+
			"Content-ID: <root.message@smev>\r\n\r\n"+body+"\r\n--uuid:b1--\r\n")
}

// content returns the part of a response that says what it is.
func content(q *queued) string {
	switch q.reply.Kind {
	case "RequestRejected":
		return `<ns:RequestRejected><ns:RejectionReasonCode>` + q.reply.Code + `</ns:RejectionReasonCode><ns:RejectionReasonDescription>no</ns:RejectionReasonDescription></ns:RequestRejected>`
	case "RequestStatus":
		return `<ns:RequestStatus><ns:StatusCode>` + q.reply.Code + `</ns:StatusCode><ns:StatusDescription>soon</ns:StatusDescription></ns:RequestStatus>`
	case "AsyncProcessingStatus":
		return `<ns:AsyncProcessingStatus><ns:OriginalMessageId>` + q.original + `</ns:OriginalMessageId><ns:StatusCategory>requestIsRejectedBySmev</ns:StatusCategory>` +
			`<ns:SmevFault><b:Code>` + q.reply.Code + `</b:Code><b:Description>no</b:Description></ns:SmevFault></ns:AsyncProcessingStatus>`
	}
	return `<b:MessagePrimaryContent><r:Response xmlns:r="urn://example/1.0"><r:MessageID>of the content</r:MessageID>` + q.original + `</r:Response></b:MessagePrimaryContent>`
}

// nextResponse returns the response that is given next; nil if there is none.
func (s *SMEV) nextResponse(now time.Time) (next *queued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queue {
		if !q.acked && !now.Before(q.from) {
			if next = q; !s.options.Reverse {
				break
			}
		}
	}
	if next != nil {
		next.from = now.Add(s.options.Redeliver)
	}
	return next
}

// ack is Ack.
func (s *SMEV) ack(c *Call, call smevCall) {
	s.mu.Lock()
	s.acks[call.target]++
	at := slices.IndexFunc(s.queue, func(q *queued) bool { return q.id == call.target && !q.acked })
	if at >= 0 {
		s.queue[at].acked = true
	}
	s.mu.Unlock()
	if at < 0 {
		s.fault(c, "TargetMessageIsNotFound", "<b:Code xmlns:b=\""+smevTypes+"basic/"+s.options.Version+"\">SMEV-501</b:Code>")
		return
	}
	if s.options.Acked != nil {
		s.options.Acked(call.target)
	}
	s.reply(c, `<ns:AckResponse/>`)
}

var lowerUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// uuidTime returns the time in a UUID of version 1.
func uuidTime(id string) time.Time {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return time.Time{}
	}
	units := int64(b[6]&0x0f)<<56 | int64(b[7])<<48 | int64(b[4])<<40 | int64(b[5])<<32 | int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3])
	const between = 122_192_928_000_000_000 // units of 100 ns from 1582-10-15 to 1970
	units -= between
	return time.Unix(units/10_000_000, units%10_000_000*100)
}
