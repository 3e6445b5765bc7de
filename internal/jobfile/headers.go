package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// headerField begins the fields of a Map that are headers of the job's record, such as header.device-token.
const headerField = "header."

// keyField begins those that are keys of the job, such as key.chat.
const keyField = "key."

// Bounds on the headers that a caller adds to jobs.
const (
	maxHeaders    = 32
	maxHeaderName = 128
	maxHeaderText = 16 << 10
)

// ParseHeaders parses pairs such as tenant=blue, which become headers of every job. Of pacer's own headers, those that a producer may
// set are allowed.
func ParseHeaders(pairs []string) (list []delivery.Header, err error) {
	if len(pairs) > maxHeaders {
		return nil, fmt.Errorf("%d headers are more than %d; give fewer", len(pairs), maxHeaders)
	}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || value == "" || len(value) > maxHeaderText {
			return nil, fmt.Errorf("%s must be NAME=VALUE with a value of 1 to %d bytes, such as pacer-destination=shop-7", name, maxHeaderText)
		}
		own := slices.Contains(slices.Collect(maps.Values(headerOf)), name)
		if problem := headerProblem(name); problem != "" && !own {
			return nil, fmt.Errorf("%s", problem)
		}
		if slices.ContainsFunc(list, func(h delivery.Header) bool { return h.Key == name }) {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		list = append(list, delivery.Header{Key: name, Value: []byte(value)})
	}
	return list, nil
}

// HeadersProblem returns what a daemon would find wrong with the headers of every job; "" for nothing.
func (s *Source) HeadersProblem() string {
	if len(s.Headers) == 0 {
		return ""
	}
	r := record.New(s.Campaign, "job", nil)
	Dress(&r, s.Headers)
	if job := record.Decode(&r, delivery.FromIngress, s.Limits, time.Now()); job.Flaw != nil {
		return job.Flaw.Detail
	}
	return ""
}

// Destination returns the destination that every job names, unless the file has another for it; byFile reports whether the file may name some.
func (s *Source) Destination() (id string, byFile bool) {
	for _, h := range s.Headers {
		if h.Key == delivery.HeaderDestination {
			id = string(h.Value)
		}
	}
	return id, s.Map[fieldDestination] != ""
}

// headerProblem returns what is wrong with the name of a header that is not pacer's; "" for nothing.
func headerProblem(name string) string {
	switch {
	case name == "" || len(name) > maxHeaderName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Sprintf("%q is no name of a header; use 1 to %d printable ASCII characters without spaces", name, maxHeaderName)
	case strings.HasPrefix(name, delivery.HeaderKey) && delivery.ValidKeyName(name[len(delivery.HeaderKey):]):
	case strings.HasPrefix(strings.ToLower(name), delivery.HeaderPrefix):
		return fmt.Sprintf("%s is a header of pacer's; of these, set %s", name, strings.Join(slices.Sorted(maps.Values(headerOf)), ", "))
	}
	return ""
}

// used returns the fields that the map names, in their order on the record.
func (m Map) used() (list []string) {
	for _, field := range Fields {
		if m[field] != "" {
			list = append(list, field)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(field, headerField) {
			list = append(list, field)
		}
	}
	return list
}

// optionalHeader returns the header that holds a field which may be missing; "" for a field that may not.
func optionalHeader(field string) string {
	if name, ok := strings.CutPrefix(field, headerField); ok {
		return name
	}
	return headerOf[field]
}

// Dress sets headers of a record, in place of those that it has with the same names.
func Dress(r *delivery.Record, headers []delivery.Header) {
	for _, h := range headers {
		at := slices.IndexFunc(r.Headers, func(o delivery.Header) bool { return o.Key == h.Key })
		if at < 0 {
			r.Headers = append(r.Headers, h)
			continue
		}
		r.Headers[at] = h
	}
}
