package smtp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// stage says how far a delivery came.
type stage uint8

// The stages, in order. Only at the last one may the server have taken the message.
const (
	connecting     stage = iota // and the greeting
	securing                    // encryption
	authenticating              // AUTH
	announcing                  // MAIL: who sends
	addressing                  // RCPT: to whom
	beginning                   // DATA, and the message
	ending                      // the end of the message
)

// failure is why a message was not taken.
type failure struct {
	stage stage
	err   error
}

// reply is what a server says.
type reply struct {
	code     int
	enhanced string // as of RFC 3463, such as 5.1.1; "" for none
	text     string // the rest
}

func (r reply) String() string {
	return strings.TrimSpace(strings.TrimSpace(strconv.Itoa(r.code)+" "+r.enhanced) + " " + r.text)
}

var enhancedPattern = regexp.MustCompile(`^([245]\.\d{1,3}\.\d{1,3})(?:[ \t]+|$)`)

// parseReply reads the text of a reply. Each line may begin with the enhanced code.
func parseReply(code int, text string) reply {
	r := reply{code: code}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if m := enhancedPattern.FindStringSubmatch(line); m != nil {
			r.enhanced, lines[i] = m[1], line[len(m[0]):]
		}
	}
	r.text = strings.Join(lines, " ")
	return r
}

// reply returns what the server said; ok is false if it said nothing.
func (f *failure) reply() (r reply, ok bool) {
	said, ok := errors.AsType[*textproto.Error](f.err)
	if !ok {
		return reply{}, false
	}
	return parseReply(said.Code, said.Msg), true
}

const closing = 421 // service not available, closing the connection

// closes reports whether the connection cannot be used after the failure.
func (f *failure) closes() bool {
	r, said := f.reply()
	return !said || r.code == closing
}

// stale reports whether the failure may come from the connection having been used before: the server has ended it meanwhile.
func (f *failure) stale() bool { return f.closes() && f.stage < ending }

// Codes about pacer's credentials, at any stage.
var (
	authCodes    = []int{530, 534, 535, 538}
	authEnhanced = []string{"5.7.8", "5.7.9", "5.7.11", "5.7.13", "5.7.14"}
	// busyCodes say that the server has too much to do, or gets too much.
	busyCodes = []int{closing, 432, 452, 454}
	// commandCodes are about a command that the server does not know.
	commandCodes = []int{500, 502, 503, 504, 555}
	// gone are the enhanced codes about a mailbox that is not there (any more), or a domain that takes no mail. 5.4.1 is how
	// Exchange Online says so.
	gone = []string{"5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.1.6", "5.1.10", "5.2.1", "5.4.1"}
	// large are those about the size of the message.
	large = []string{"5.2.3", "5.3.4"}
)

// busyWait is how long the sink waits when the server has too much to do. It does not say how long.
const busyWait = 10 * time.Second

// classify returns the result for what a server said at a stage; byJob reports whether the sender's address is the job's, and
// wait is how long a job waits whose recipient is not taken for now. The code says what is wrong where it says enough, and
// the stage what it is about.
//
//	2xx to the message                                            delivered
//	421, 432, 452, 454; 4.3.x and 4.5.3; 4.7.x to the sender      throttled, the sink
//	4.2.x, 4.7.x; other 4xx                                       temporary
//	530, 534, 535, 538 and others about credentials               misconfigured
//	5xx before there is a message; to commands                    misconfigured
//	5xx to the sender                                             misconfigured; permanent where the job said it
//	5.1.x, 5.2.1, 5.4.1, 551, 556 to the recipient or the message rejected
//	other 5xx to the recipient or the message                     permanent
func classify(at stage, r reply, byJob bool, wait time.Duration) delivery.Result {
	_, subject, _ := strings.Cut(r.enhanced, ".")
	about, _, _ := strings.Cut(subject, ".") // the second number
	credentials := slices.Contains(authCodes, r.code) || slices.Contains(authEnhanced, r.enhanced)
	switch {
	case r.code/100 == 2 && at == ending:
		return delivery.Result{Class: delivery.Delivered}
	case credentials || at == authenticating && r.code/100 != 4:
		return delivery.Result{Class: delivery.Misconfigured}
	case r.code/100 == 4:
		return later(at, r, about, wait)
	case r.code/100 != 5: // nothing that makes sense
		return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
	case at < announcing:
		return delivery.Result{Class: delivery.Misconfigured}
	case r.code == 552 || slices.Contains(large, r.enhanced) || about == "6":
		return delivery.Result{Class: delivery.Permanent}
	case at == announcing && !byJob, at != addressing && slices.Contains(commandCodes, r.code), r.code == 503:
		return delivery.Result{Class: delivery.Misconfigured}
	case at > announcing && (slices.Contains(gone, r.enhanced) || r.enhanced == "" && (r.code == 551 || r.code == 556)):
		return delivery.Result{Class: delivery.Rejected}
	}
	return delivery.Result{Class: delivery.Permanent}
}

// later classifies 4xx.
func later(at stage, r reply, about string, wait time.Duration) delivery.Result {
	switch {
	case at <= authenticating,
		slices.Contains(busyCodes, r.code) && about != "2",
		about == "3" || r.enhanced == "4.5.3",
		about == "7" && at == announcing:
		return delivery.Result{Class: delivery.Throttled, RetryAfter: busyWait}
	}
	return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination, RetryAfter: wait}
}

// unanswered returns the result of a delivery that ended without an answer of the server.
//
//	a certificate, no encryption or authentication offered, no SMTP misconfigured
//	the end of the message was sent                                temporary: it may have been taken
//	otherwise                                                      unreachable: it was certainly not taken
func unanswered(f *failure) delivery.Result {
	var notSMTP textproto.ProtocolError
	switch {
	case f.stage == ending:
		return delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody}
	case httpcall.WrongSettings(f.err), errors.Is(f.err, errNoTLS), errors.Is(f.err, errNoAuth),
		errors.As(f.err, &notSMTP), f.stage == authenticating && !broken(f.err):
		return delivery.Result{Class: delivery.Misconfigured}
	}
	return delivery.Result{Class: delivery.Unreachable}
}

// broken reports whether an error is about the connection.
func broken(err error) bool {
	var op net.Error
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errLongReply) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// describe says what went wrong without an answer, in one line.
func (s *Sink) describe(f *failure, timedOut bool) string {
	where := s.config.Addr
	var op *net.OpError
	var text string
	switch {
	case timedOut || errors.Is(f.err, context.DeadlineExceeded):
		text = "no answer from " + where + " within " + s.config.Timeout.String()
	case errors.Is(f.err, io.EOF) || errors.Is(f.err, io.ErrUnexpectedEOF):
		text = where + " closed the connection"
	case errors.As(f.err, &op):
		text = op.Error()
	default:
		text = where + ": " + f.err.Error()
	}
	text += [...]string{
		connecting: "", securing: ", at the encryption of the connection", authenticating: ", at the authentication", announcing: ", after MAIL",
		addressing: ", after RCPT", beginning: ", before the end of the message", ending: "; it may have taken the message",
	}[f.stage]
	return text
}

// queued matches the id that a server gave the message, in the wordings of Postfix and similar servers, Exim and others, and Amazon SES.
var queued = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\bqueued as:? *([A-Za-z0-9._@-]+)`), regexp.MustCompile(`(?i)\bid[=:] *<?([A-Za-z0-9._@-]+)`),
	regexp.MustCompile(`(?i)^ok:? +([A-Za-z0-9._@-]{12,})(?:$|[ ;])`),
}

func queueID(text string) string {
	for _, q := range queued {
		if m := q.FindStringSubmatch(text); m != nil {
			return m[1]
		}
	}
	return ""
}
