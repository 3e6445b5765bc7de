package jobfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// mark is the byte order mark that some editors write at the beginning of a file.
var mark = []byte("\xef\xbb\xbf")

// lines yields the lines of a file that are not empty, without their ends. A line that is too long ends the sequence.
func (s *Source) lines(r io.Reader) iter.Seq2[raw, error] {
	return func(yield func(raw, error) bool) {
		at := int64(0) // the line
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), MaxEntry+2) // and its line end
		for scanner.Scan() {
			at++
			line := scanner.Bytes()
			if len(line) > MaxEntry {
				yield(raw{}, tooLong(at))
				return
			}
			if at == 1 {
				line = bytes.TrimPrefix(line, mark)
			}
			if len(line) == 0 {
				continue
			}
			if !yield(s.line(slices.Clone(line), at)) {
				return
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(raw{}, tooLong(at+1))
		case err != nil:
			yield(raw{}, fmt.Errorf("line %d cannot be read: %w", at+1, err))
		}
	}
}

func tooLong(line int64) error {
	return &LineError{line, fmt.Sprintf("is longer than %d bytes, the most a job may have here; is there one job a line?", MaxEntry)}
}

// line is a line as an entry. Where a map names its parts, it must be a JSON object.
func (s *Source) line(line []byte, number int64) (raw, error) {
	e := raw{line: number, payload: line}
	if len(s.Map) == 0 {
		return e, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil || object == nil {
		return e, &LineError{number, `is not a JSON object, as --map needs it, such as {"key": "u-42"}; correct it`}
	}
	e.value = func(column, field string) ([]byte, error) {
		v := object[column]
		if v == nil || string(v) == "null" {
			return nil, nil
		}
		if field == fieldPayload {
			return v, nil
		}
		text, ok := scalar(v)
		switch {
		case !ok && strings.HasPrefix(field, headerField): // JSON, such as a subscription
			return v, nil
		case !ok:
			return nil, fmt.Errorf("has a %q that is neither a string nor a number; correct it", column)
		}
		return text, nil
	}
	return e, nil
}

// scalar returns the text of a JSON string or number.
func scalar(v json.RawMessage) ([]byte, bool) {
	switch v[0] {
	case '{', '[', 't', 'f':
		return nil, false
	case '"':
		var text string
		err := json.Unmarshal(v, &text)
		return []byte(text), err == nil
	}
	return v, true
}
