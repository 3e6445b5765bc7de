package delivery

import "strings"

// Bounds of a trace state. W3C Trace Context allows 32 members, and asks for 512 bytes at least to be passed on.
const (
	maxTraceMembers = 32
	maxTraceState   = 512
)

// TraceState is the job's trace state for its sink: the tracestate headers of its record as one list, cut to 512 bytes at
// a member's end. It is "" without a trace parent, to which it belongs, and if it is malformed, as W3C Trace Context
// specifies.
func (j *Job) TraceState() string {
	if j.TraceParent == "" {
		return ""
	}
	var members []string
	for _, h := range j.Headers {
		if h.Key != HeaderTraceState {
			continue
		}
		for member := range strings.SplitSeq(string(h.Value), ",") {
			if member = strings.Trim(member, " \t"); member == "" {
				continue
			}
			if !traceMember(member) || len(members) == maxTraceMembers {
				return ""
			}
			members = append(members, member)
		}
	}
	state := strings.Join(members, ",")
	for len(state) > maxTraceState {
		state = state[:max(0, strings.LastIndexByte(state, ','))]
	}
	return state
}

// traceMember reports whether text is a key and a value of printable ASCII.
func traceMember(text string) bool {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" || value == "" || strings.ContainsAny(value, "=") || strings.ContainsAny(key, " \t") {
		return false
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
