package broker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/pacer/pacer/internal/delivery"
)

// records reads the records of one batch, one after the other. It holds one at a time, of limit bytes at most.
type records struct {
	batch logBatch
	limit int64
	close func()
	left  int // records to come
	*scratch
}

// scratch is memory that the records of several batches use one after the other.
type scratch struct {
	in      bufio.Reader // what was decompressed
	buf     []byte       // of the last record
	headers []delivery.Header
	names   map[string]string // of headers, which are the same in most records
}

// maxNames and maxName bound the names of headers that are kept, and their lengths.
const maxNames, maxName = 64, 128

// name returns a header's name as a string, without memory of its own if it has been seen.
func (s *scratch) name(b []byte) string {
	if known, ok := s.names[string(b)]; ok {
		return known
	}
	name := string(b)
	if s.names == nil {
		s.names = make(map[string]string, maxNames)
	}
	if len(s.names) < maxNames && len(name) <= maxName {
		s.names[name] = name
	}
	return name
}

const (
	// minBatch and maxExpansion bound what is decompressed of one batch: bytes, or records of the largest size.
	minBatch     = 256 << 20
	maxExpansion = 16
)

var errMalformed = errors.New("the records are malformed")

// newRecords begins to read a batch, and may decompress up to most bytes. Call close afterwards.
func newRecords(b logBatch, limit, most int64, s *scratch) (*records, error) {
	in, done, err := decompress(b.attributes().Compression(), b.Records, most)
	if err != nil {
		return nil, err
	}
	s.in.Reset(in)
	return &records{batch: b, limit: limit, close: done, left: int(b.NumRecords), scratch: s}, nil
}

// next reads the next record, with its size; the error is io.EOF at the end. The record is valid until the next call. Of
// one that is larger than the limit, or before the offset from, there are only the time and the offset.
func (r *records) next(from int64) (rec delivery.Record, size int64, err error) {
	if r.left <= 0 {
		return rec, 0, io.EOF
	}
	r.left--
	if size, err = binary.ReadVarint(&r.in); err == nil {
		switch {
		case size < 0:
			err = errMalformed
		case size > r.limit:
			err = r.skip(&rec, size)
		default:
			err = r.read(&rec, size, from)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errMalformed // there are more to come
	}
	return rec, size, err
}

// read reads a record that fits.
func (r *records) read(rec *delivery.Record, size, from int64) error {
	r.buf = r.buf[:0]
	for int64(len(r.buf)) < size { // as it comes: the size may be wrong
		n := int(min(size-int64(len(r.buf)), max(int64(len(r.buf)), 4<<10)))
		r.buf = slices.Grow(r.buf, n)
		if _, err := io.ReadFull(&r.in, r.buf[len(r.buf):len(r.buf)+n]); err != nil {
			return err
		}
		r.buf = r.buf[:len(r.buf)+n]
	}
	body := kbin.Reader{Src: r.buf}
	if r.begin(&body, rec); rec.Offset < from {
		return whole(&body)
	}
	rec.Key, rec.Value = body.VarintBytes(), body.VarintBytes()
	n := int(body.Varint())
	if n < 0 || n > len(body.Src) { // each takes two bytes at least
		return errMalformed
	}
	before := r.headers
	r.headers = r.headers[:0]
	for i := range n {
		key := body.VarintBytes()
		if i < len(before) && before[i].Key == string(key) {
			r.headers = append(r.headers, delivery.Header{Key: before[i].Key, Value: body.VarintBytes()})
		} else {
			r.headers = append(r.headers, delivery.Header{Key: r.name(key), Value: body.VarintBytes()})
		}
	}
	rec.Headers = r.headers
	return whole(&body)
}

// begin parses what comes before the key.
func (r *records) begin(body *kbin.Reader, rec *delivery.Record) {
	body.Int8() // attributes, which are not used
	rec.Time = time.UnixMilli(r.batch.FirstTimestamp + body.Varlong())
	rec.Offset = r.batch.FirstOffset + int64(body.Varint())
}

// whole returns an error if the bytes of a record have ended early.
func whole(body *kbin.Reader) error {
	if !body.Ok() {
		return errMalformed
	}
	return nil
}

// skip passes over a record that is larger than the limit.
func (r *records) skip(rec *delivery.Record, size int64) error {
	const head = 1 + 2*binary.MaxVarintLen64 // what begin parses
	peeked, err := r.in.Peek(int(min(size, head)))
	if err != nil {
		return err
	}
	body := kbin.Reader{Src: peeked}
	r.begin(&body, rec)
	if _, err = io.CopyN(io.Discard, &r.in, size); err != nil {
		return err
	}
	return whole(&body)
}

// tooLarge describes a record that was passed over.
func tooLarge(size, limit int64) string {
	return fmt.Sprintf("the record has %d bytes, more than kafka.max_record_bytes (%d)", size, limit)
}
