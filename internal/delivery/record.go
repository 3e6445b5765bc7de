package delivery

import (
	"strings"
	"time"
)

// Record is a Kafka record. One that was read has all fields; of one to be written, Topic, Partition and Offset do not
// matter, and a zero Time stands for now.
type Record struct {
	Topic     string
	TopicID   TopicID // set by the reader of jobs
	Partition int
	Offset    int64
	Time      time.Time
	Key       []byte
	Value     []byte
	Headers   []Header
	Flaw      *Flaw // why it could not be read as a whole; nil if it was
}

// Header returns the value of the first header with that key, "" if there is none.
func (r Record) Header(key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Record headers of a job. Names beginning with "pacer-" belong to pacer; all others are kept on the record and
// never sent to a sink.
const (
	HeaderPrefix      = "pacer-"
	HeaderCampaign    = "pacer-campaign"
	HeaderJobID       = "pacer-job-id"
	HeaderWeight      = "pacer-weight"
	HeaderPriority    = "pacer-priority"
	HeaderDestination = "pacer-destination"
	HeaderKey         = "pacer-key-" // and the name of a key, for keyed quotas; 1 to MaxIDLength bytes
	HeaderNotBefore   = "pacer-not-before"
	HeaderExpiresAt   = "pacer-expires-at"
	HeaderTimeZone    = "pacer-time-zone"        // of the recipient, such as Asia/Yekaterinburg
	HeaderLocal       = "pacer-not-before-local" // HeaderNotBefore as the clocks of that zone show it, such as 2026-12-01T10:00
	HeaderContentType = "content-type"
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
	HeaderCloudEvent  = "ce_id" // stands in for HeaderJobID
	HeaderEventSource = "ce_source"

	// Written by pacer. HeaderFormat is the version of their format. It is not written yet: without it, it is 1.
	HeaderFormat        = "pacer-format"
	HeaderAttempt       = "pacer-attempt"         // decimal
	HeaderHops          = "pacer-hops"            // decimal, lanes only
	HeaderTimerHops     = "pacer-timer-hops"      // decimal, timers only
	HeaderOrigin        = "pacer-origin"          // <topic>/<partition>/<offset>
	HeaderOriginTopicID = "pacer-origin-topic-id" // of the topic in HeaderOrigin
	HeaderEnqueuedAt    = "pacer-enqueued-at"     // RFC 3339 with nanoseconds
	HeaderDue           = "pacer-due"             // RFC 3339 with nanoseconds; a retry is not sent before
	HeaderFirstRead     = "pacer-first-read"      // RFC 3339 with nanoseconds; kept on every re-enqueue
	HeaderPublishedAt   = "pacer-published-at"    // RFC 3339; the timestamp of the first record
	HeaderReason        = "pacer-reason"
	HeaderDetail        = "pacer-detail" // dead letters: one line for the reader
	// HeaderStep and the following are a job's State: between the steps of a request, and on a dead letter.
	HeaderStep  = "pacer-step"  // the name of the step that comes next
	HeaderVars  = "pacer-vars"  // JSON
	HeaderBegan = "pacer-began" // RFC 3339 with nanoseconds
	HeaderWaits = "pacer-waits" // decimal
	// HeaderProviderCode and the following are what the last answer said in the destination's own words, on a dead letter;
	// HeaderProviderMessageID is kept on every re-enqueue as well. See Provider.
	HeaderProviderCode      = "pacer-provider-code"
	HeaderProviderMessageID = "pacer-provider-message-id"
	HeaderGoneSince         = "pacer-gone-since" // RFC 3339
	HeaderAnswer            = "pacer-answer"     // dead letters: the beginning of the last answer, one line
	// HeaderEnvelopeCampaign names the campaign in the envelope of a dead letter whose value is that envelope.
	// HeaderCampaign would make the envelope the payload when the letter is replayed.
	HeaderEnvelopeCampaign = "pacer-envelope-campaign"
	// HeaderReplayedFrom names the dead letter that a job was replayed from: <topic>/<partition>/<offset>.
	// The job keeps it even if it becomes a dead letter again.
	HeaderReplayedFrom = "pacer-replayed-from"
)

// MaxQuotas is how many quotas a campaign may have: the schema allows as many, and the work of a script grows with them.
const MaxQuotas = 16

// MaxKeys is how many keys a job may have.
const MaxKeys = 16

// MaxIDLength bounds the ids of jobs, campaigns, quotas and destinations.
const MaxIDLength = 256

// IDRule is what ValidID asks of an id.
const IDRule = "must be 1 to 256 printable ASCII characters without spaces"

// ValidID reports whether s may be the id of a job, a campaign, a quota or a destination: 1 to 256 printable ASCII
// characters without spaces.
func ValidID(s string) bool {
	return s != "" && len(s) <= MaxIDLength && printable(s, '!')
}

// printable reports whether all of s is ASCII from a character up to ~.
func printable(s string, from byte) bool {
	for i := range len(s) {
		if s[i] < from || s[i] > '~' {
			return false
		}
	}
	return true
}

// UnknownCampaign stands for the campaign of jobs that name none in the catalog, in metrics and lists. No campaign may
// have it as its id.
const UnknownCampaign = "(unknown)"

// ValidKeyName reports whether s may be the name of a key: 1 to 32 lower-case letters, digits and dashes.
func ValidKeyName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// ValidCampaign reports whether s may be the id of a campaign.
func ValidCampaign(s string) bool { return ValidID(s) && s != UnknownCampaign }
