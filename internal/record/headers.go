package record

import (
	"fmt"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// producerHeaders are the headers of pacer's that a producer may write, for suggestions.
var producerHeaders = []string{
	delivery.HeaderCampaign, delivery.HeaderJobID, delivery.HeaderWeight, delivery.HeaderPriority, delivery.HeaderNotBefore,
	delivery.HeaderExpiresAt, delivery.HeaderDestination,
}

// scanned holds the last value of every known header; nil if the record does not have it.
type scanned struct {
	campaign, jobID, cloudEvent, weight, priority  []byte
	notBefore, expiresAt, contentType, traceParent []byte
	destination                                    []byte

	format, attempt, hops, timerHops   []byte
	origin, originTopicID              []byte
	enqueuedAt, due, firstRead, reason []byte
	publishedAt, widened, messageID    []byte
	step, vars, began, waits           []byte

	odd
}

// odd is the first header that no producer can have meant as it is: its name belongs to pacer and is not known, or it is
// there twice. "" if there is none.
type odd struct{ stray, twice string }

// field returns where to store the header's value; nil for headers that pacer does not use.
func (s *scanned) field(key string) *[]byte {
	switch key {
	case delivery.HeaderCampaign:
		return &s.campaign
	case delivery.HeaderJobID:
		return &s.jobID
	case delivery.HeaderCloudEvent:
		return &s.cloudEvent
	case delivery.HeaderWeight:
		return &s.weight
	case delivery.HeaderPriority:
		return &s.priority
	case delivery.HeaderDestination:
		return &s.destination
	case delivery.HeaderNotBefore:
		return &s.notBefore
	case delivery.HeaderExpiresAt:
		return &s.expiresAt
	case delivery.HeaderContentType:
		return &s.contentType
	case delivery.HeaderTraceParent:
		return &s.traceParent
	}
	return s.written(key)
}

// written returns where to store the value of a header written by pacer; nil for any other.
func (s *scanned) written(key string) *[]byte {
	switch key {
	case delivery.HeaderFormat:
		return &s.format
	case delivery.HeaderAttempt:
		return &s.attempt
	case delivery.HeaderHops:
		return &s.hops
	case delivery.HeaderTimerHops:
		return &s.timerHops
	case delivery.HeaderOrigin:
		return &s.origin
	case delivery.HeaderOriginTopicID:
		return &s.originTopicID
	case delivery.HeaderEnqueuedAt:
		return &s.enqueuedAt
	case delivery.HeaderDue:
		return &s.due
	case delivery.HeaderFirstRead:
		return &s.firstRead
	case delivery.HeaderPublishedAt:
		return &s.publishedAt
	case delivery.HeaderProviderMessageID:
		return &s.messageID
	case delivery.HeaderReason:
		return &s.reason
	case delivery.HeaderWidened:
		return &s.widened
	case delivery.HeaderStep:
		return &s.step
	case delivery.HeaderVars:
		return &s.vars
	case delivery.HeaderBegan:
		return &s.began
	case delivery.HeaderWaits:
		return &s.waits
	}
	return nil
}

// scan finds the known headers; of duplicates the last counts, as in Kafka's lastHeader.
func (s *scanned) scan(headers []delivery.Header) {
	for _, h := range headers {
		field := s.field(h.Key)
		if field == nil {
			if s.stray == "" && claimed(h.Key) && !bookkeeping(h.Key) && h.Key != delivery.HeaderReplayedFrom {
				s.stray = h.Key
			}
			continue
		}
		if *field != nil && s.twice == "" && strings.HasPrefix(h.Key, delivery.HeaderPrefix) {
			s.twice = h.Key
		}
		*field = h.Value
		if h.Value == nil {
			*field = []byte{} // present, with a null value
		}
	}
}

// check records a header that pacer would otherwise ignore: one that was meant for it and misspelled, or written twice.
func (s *scanned) check(j *delivery.Job) {
	if s.stray != "" {
		invalid(j, quoted(s.stray), "is not one of pacer's headers; use one of "+strings.Join(producerHeaders, ", "))
	}
	if s.twice != "" {
		invalid(j, s.twice, "must be there once")
	}
}

// claimed reports whether the name belongs to pacer: it begins with pacer-, in whatever case, or is one of its headers
// written with other separators (pacer_not_before, pacerNotBefore).
func claimed(key string) bool {
	const n = len(delivery.HeaderPrefix)
	if len(key) < n || !strings.EqualFold(key[:n-1], delivery.HeaderPrefix[:n-1]) {
		return false
	}
	if key[n-1] == delivery.HeaderPrefix[n-1] {
		return true
	}
	bare := letters(key)
	for _, known := range producerHeaders {
		if strings.EqualFold(bare, letters(known)) {
			return true
		}
	}
	return false
}

// letters leaves out the separators of a name.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_. ", r) {
			return -1
		}
		return r
	}, name)
}

// quoted quotes a producer's name for a message.
func quoted(name string) string { return fmt.Sprintf("%q", notation.Shorten(name)) }

// bookkeeping reports whether the header describes one record of a job rather than the job. Such headers are written
// anew every time and never inherited.
func bookkeeping(key string) bool {
	switch key {
	case delivery.HeaderDetail, delivery.HeaderEnvelopeCampaign, HeaderTruncated,
		delivery.HeaderProviderCode, delivery.HeaderGoneSince:
		return true
	}
	return known.written(key) != nil
}

// known has no values: its fields say which headers there are.
var known scanned

// rewritten reports whether pacer writes the header itself, from the fields of the job. If the record could not be
// decoded, the producer's headers are kept as they are.
func rewritten(key string, unread bool) bool {
	switch {
	case key == delivery.HeaderContentType:
		return !unread
	case !strings.HasPrefix(key, delivery.HeaderPrefix):
		return false
	}
	return bookkeeping(key) || !unread && known.field(key) != nil
}

// traceParentLength is the length of version 00 of W3C Trace Context; later versions may only be longer.
const traceParentLength = 55

// traceParent returns the value if it is valid. As W3C Trace Context specifies, an invalid one is ignored.
func traceParent(value []byte) string {
	if len(value) < traceParentLength || len(value) > 256 {
		return ""
	}
	version, trace, parent, flags, rest := value[:2], value[3:35], value[36:52], value[53:55], value[traceParentLength:]
	switch {
	case value[2] != '-' || value[35] != '-' || value[52] != '-':
	case !hex(version) || !hex(trace) || !hex(parent) || !hex(flags) || zeros(trace) || zeros(parent):
	case string(version) == "ff":
	case len(rest) > 0 && (string(version) == "00" || rest[0] != '-' || !printable(string(rest))):
	default:
		return string(value)
	}
	return ""
}

func hex(digits []byte) bool {
	for _, c := range digits {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zeros(digits []byte) bool { return strings.Trim(string(digits), "0") == "" }
