package jobfile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// readAhead is what csv.Reader reads beyond an entry, in bytes.
const readAhead = 4096

// table yields the entries of a CSV file. A wrong quote ends the sequence: the begin of the next entry is unknown.
func (s *Source) table(r io.Reader) iter.Seq2[raw, error] {
	return func(yield func(raw, error) bool) {
		t := &table{source: s}
		t.open(r)
		err := t.head()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			yield(raw{}, err)
			return
		}
		for {
			e, err := t.next()
			if errors.Is(err, io.EOF) || !yield(e, err) || t.lost {
				return
			}
		}
	}
}

// table reads a CSV file.
type table struct {
	source  *Source
	columns []string
	csv     *csv.Reader
	bound   *bounded
	offset  int64 // behind the last entry
	line    int64 // likewise
	lost    bool  // nobody knows where the next entry begins
}

// open begins to read, behind a byte order mark.
func (t *table) open(r io.Reader) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	if first, _ := buffered.Peek(len(mark)); bytes.Equal(first, mark) {
		_, _ = buffered.Discard(len(mark)) // they were peeked
	}
	t.bound = &bounded{r: buffered}
	t.csv = csv.NewReader(t.bound)
	t.csv.FieldsPerRecord, t.csv.ReuseRecord = -1, true
}

// head reads the names of the columns.
func (t *table) head() error {
	cells, line, err := t.read()
	if err != nil {
		return err
	}
	t.columns = slices.Clone(cells)
	for i, name := range t.columns {
		if slices.Contains(t.columns[:i], name) {
			return &LineError{line, fmt.Sprintf("names the column %q twice; give each its own name", name)}
		}
	}
	for _, field := range t.source.Map.used() {
		if column := t.source.Map[field]; !slices.Contains(t.columns, column) {
			return &LineError{line, fmt.Sprintf("names no column %q, the %s of --map; it names %s", column, field, strings.Join(t.columns, ", "))}
		}
	}
	return nil
}

// next reads an entry.
func (t *table) next() (raw, error) {
	cells, line, err := t.read()
	if err != nil {
		return raw{}, err
	}
	e := raw{line: line}
	if len(cells) != len(t.columns) {
		return e, &LineError{line, fmt.Sprintf("has %d cells, and the first line names %d columns; quote cells that contain commas",
			len(cells), len(t.columns))}
	}
	if t.source.Map[fieldPayload] == "" {
		e.payload = t.object(cells)
	}
	e.value = func(column, _ string) ([]byte, error) {
		if cell := cells[slices.Index(t.columns, column)]; cell != "" {
			return []byte(cell), nil
		}
		return nil, nil
	}
	return e, nil
}

// read reads the cells of an entry, valid until the next call, and the number of its first line.
func (t *table) read() (cells []string, line int64, err error) {
	before := t.offset
	t.bound.left = MaxEntry + readAhead
	cells, err = t.csv.Read()
	t.offset = t.csv.InputOffset()
	var wrong *csv.ParseError
	switch {
	case errors.Is(err, errBound):
		t.lost = true
		return nil, 0, tooLong(t.line + 1)
	case errors.As(err, &wrong):
		t.lost = true
		return nil, 0, &LineError{int64(wrong.StartLine),
			"has quotes that do not fit; quote the whole cell, and double the quotes within it"}
	case err != nil && !errors.Is(err, io.EOF):
		t.lost = true
		return nil, 0, fmt.Errorf("line %d cannot be read: %w", t.line+1, err)
	case err != nil:
		return nil, 0, io.EOF
	}
	first, _ := t.csv.FieldPos(0)
	line = int64(first)
	t.line = line
	for _, cell := range cells {
		t.line += int64(strings.Count(cell, "\n"))
	}
	if t.offset-before > MaxEntry+2 { // and its line end
		return nil, 0, tooLong(line)
	}
	return cells, line, nil
}

// object is an entry as a JSON object, with the columns as keys, in their order.
func (t *table) object(cells []string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	text := func(before byte, s string) {
		b.WriteByte(before)
		_ = encoder.Encode(s)   // a string can be encoded
		b.Truncate(b.Len() - 1) // without the line end
	}
	for i, cell := range cells {
		begin := byte(',')
		if i == 0 {
			begin = '{'
		}
		text(begin, t.columns[i])
		text(':', cell)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// errBound is the error of a bounded reader.
var errBound = errors.New("entry too long")

// bounded reads at most left bytes.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBound
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
