// Package jobfile reads files of jobs for `pacer publish`: it checks a file, turns its entries into records, and notes
// how far a file was published.
package jobfile

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// MaxEntry bounds a line, or an entry of a CSV file, in bytes, and so the memory for a file of any size.
const MaxEntry = 1 << 20

// Format is how jobs are written in a file.
type Format string

// The formats.
const (
	Lines Format = "lines" // a job is a line; empty ones are skipped
	CSV   Format = "csv"   // as in RFC 4180; the first line names the columns
)

// FormatOf returns the format of a file with this name.
func FormatOf(name string) Format {
	if strings.HasSuffix(strings.ToLower(name), ".csv") {
		return CSV
	}
	return Lines
}

// Map says which column of a CSV file, or which key of a line's JSON object, holds which field of the job.
type Map map[string]string

// The fields of a job that every file has, or has by its lines.
const (
	fieldPayload     = "payload"
	fieldID          = "id"
	fieldDestination = "destination"
)

// Fields are the fields of a job that a Map may name.
var Fields = append([]string{fieldPayload}, record.Keys[1:]...) // all jobs of a file are of one campaign

// headerOf are the headers of the fields that may be missing.
var headerOf = func() map[string]string {
	headers := map[string]string{}
	for _, field := range record.Keys[2:] {
		headers[field] = record.HeaderOf(field)
	}
	return headers
}()

// ParseMap parses pairs such as payload=body.
func ParseMap(pairs []string) (Map, error) {
	m := Map{}
	for _, pair := range pairs {
		field, column, ok := strings.Cut(pair, "=")
		if !ok || column == "" {
			return nil, fmt.Errorf("%q must be FIELD=COLUMN, such as payload=body", pair)
		}
		if name, ok := strings.CutPrefix(field, keyField); ok {
			if !delivery.ValidKeyName(name) {
				return nil, fmt.Errorf("%s: a key has a name of 1 to 32 lower-case letters, digits and dashes, such as %srecipient", field, keyField)
			}
			field = headerField + delivery.HeaderKey + name
		}
		if name, ok := strings.CutPrefix(field, headerField); ok {
			if problem := headerProblem(name); problem != "" {
				return nil, fmt.Errorf("%s: %s", field, problem)
			}
		} else if !slices.Contains(Fields, field) {
			return nil, fmt.Errorf("%q is not a field of a job; use one of %s, %sNAME for a key, or %sNAME for another header", field, strings.Join(Fields, ", "), keyField, headerField)
		}
		if m[field] != "" {
			return nil, fmt.Errorf("%s is given twice", field)
		}
		m[field] = column
	}
	if len(m) > len(Fields)+maxHeaders {
		return nil, fmt.Errorf("%d fields are more than %d; give fewer", len(m), len(Fields)+maxHeaders)
	}
	return m, nil
}

// LineError is what is wrong with a line, and what to do.
type LineError struct {
	Line    int64  `json:"line"`
	Problem string `json:"problem"` // continues "line 7 …"
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d %s", e.Line, e.Problem) }

// Source says how to read a file. Campaign and Format are required.
type Source struct {
	Campaign string
	Format   Format
	Map      Map
	Headers  []delivery.Header // of every job that has none of the same name of its own
	Limits   record.Limits
	// Prefix begins the ids of jobs without a mapped id; their line numbers end them.
	Prefix string
}

// Jobs yields the jobs of a file. Behind a *LineError the sequence goes on if the file can be read further; any other error ends it. It
// holds one entry in memory.
func (s *Source) Jobs(r io.Reader) iter.Seq2[delivery.Record, error] {
	entries := s.lines
	if s.Format == CSV {
		entries = s.table
	}
	return func(yield func(delivery.Record, error) bool) {
		for raw, err := range entries(r) {
			var job delivery.Record
			if err == nil {
				job, err = s.job(&raw)
			}
			if !yield(job, err) {
				return
			}
		}
	}
}

// raw is an entry before it is a job.
type raw struct {
	line    int64  // its first
	payload []byte // if the map names none
	// value returns what is in a column; nil if there is nothing. JSON that is neither a string nor a number is for payloads and headers. An
	// error is what is wrong with the line.
	value func(column, field string) ([]byte, error)
}

// job makes an entry a job.
func (s *Source) job(e *raw) (delivery.Record, error) {
	bad := func(format string, args ...any) (delivery.Record, error) {
		return delivery.Record{}, &LineError{Line: e.line, Problem: fmt.Sprintf(format, args...)}
	}
	id, payload := []byte(cmp.Or(s.Prefix, "job")+"-"+strconv.FormatInt(e.line, 10)), e.payload
	more := slices.Clone(s.Headers)
	for _, field := range s.Map.used() {
		column, header := s.Map[field], optionalHeader(field)
		v, err := e.value(column, field)
		switch {
		case err != nil:
			return bad("%s", err)
		case v == nil && header == "":
			return bad("has no %q, the %s of its job; add it, or correct --map", column, field)
		case field == fieldID:
			id = v
		case field == fieldPayload:
			payload = v
		case v != nil:
			more = append(more, delivery.Header{Key: header, Value: v})
		}
	}
	r := record.New(s.Campaign, string(id), payload)
	Dress(&r, more)
	if problem := s.defect(&r, len(more) > 0); problem != "" {
		return bad("%s", problem)
	}
	return r, nil
}

// defect says what a daemon would find wrong with the record; "" for nothing. Without more headers, only the id can be
// wrong.
func (s *Source) defect(r *delivery.Record, more bool) string {
	if s.Map[fieldID] != "" && !delivery.ValidID(r.Header(delivery.HeaderJobID)) {
		return fmt.Sprintf("has a bad id: %q %s", s.Map[fieldID], delivery.IDRule)
	}
	if !more {
		return ""
	}
	job := record.Decode(r, delivery.FromIngress, s.Limits, time.Now())
	if job.Flaw == nil {
		return ""
	}
	what := job.Flaw.Detail
	for field, header := range headerOf {
		if rest, ok := strings.CutPrefix(what, header+" "); ok {
			return fmt.Sprintf("has a bad %s: %q %s", field, cmp.Or(s.Map[field], header), rest)
		}
	}
	return "is not a job: " + what
}
