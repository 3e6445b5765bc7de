package delivery

// Record headers of a job. Names beginning with "pacer-" belong to pacer; all others are kept on the record and
// never sent to a sink.
const (
	HeaderPrefix      = "pacer-"
	HeaderCampaign    = "pacer-campaign"
	HeaderJobID       = "pacer-job-id"
	HeaderWeight      = "pacer-weight"
	HeaderPriority    = "pacer-priority"
	HeaderNotBefore   = "pacer-not-before"
	HeaderExpiresAt   = "pacer-expires-at"
	HeaderContentType = "content-type"
	HeaderTraceParent = "traceparent"
	HeaderCloudEvent  = "ce_id" // stands in for HeaderJobID

	// Written by pacer.
	HeaderAttempt    = "pacer-attempt"     // decimal
	HeaderHops       = "pacer-hops"        // decimal, lanes only
	HeaderTimerHops  = "pacer-timer-hops"  // decimal, timers only
	HeaderOrigin     = "pacer-origin"      // <topic>/<partition>/<offset>
	HeaderEnqueuedAt = "pacer-enqueued-at" // RFC 3339 with nanoseconds
	HeaderDue        = "pacer-due"         // RFC 3339 with nanoseconds; a retry is not sent before
	HeaderFirstRead  = "pacer-first-read"  // RFC 3339 with nanoseconds; kept on every re-enqueue
	HeaderReason     = "pacer-reason"
	HeaderDetail     = "pacer-detail" // dead letters: one line for the reader
)

// MaxIDLength bounds the ids of jobs, campaigns and quotas.
const MaxIDLength = 256

// ValidID tells whether s may be the id of a job, a campaign or a quota: 1 to 256 printable ASCII characters
// without spaces.
func ValidID(s string) bool {
	if s == "" || len(s) > MaxIDLength {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
