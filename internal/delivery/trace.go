package delivery

import "strings"

// maxTraceState bounds a trace state in bytes. W3C Trace Context asks for as many at least to be passed on.
const maxTraceState = 512

// TraceState is the job's trace state for its sink: the tracestate headers of its record as one list. It is "" without a trace parent, to
// which it belongs, and if it is too long or cannot be a header.
func (j *Job) TraceState() string {
	if j.TraceParent == "" {
		return ""
	}
	var lists []string
	for _, h := range j.Headers {
		if list := strings.Trim(string(h.Value), " \t,"); h.Key == HeaderTraceState && list != "" {
			lists = append(lists, list)
		}
	}
	state := strings.Join(lists, ",")
	if len(state) > maxTraceState || !printable(state, ' ') {
		return ""
	}
	return state
}
