package broker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// shown writes all of a record but its place.
func shown(r *delivery.Record) string {
	field := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	s := fmt.Sprintf("%d %s %s", r.Time.UnixMilli(), field(r.Key), field(r.Value))
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %q=%s", h.Key, field(h.Value))
	}
	return s
}

// TestEncode: what is written is read again, by this package and by kafka-go, whose decoder is not used otherwise.
func TestEncode(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	field := rapid.Custom(func(t *rapid.T) []byte {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return bytes.Repeat([]byte("0123456789"), rapid.IntRange(0, 30_000).Draw(t, "times"))
		}
		return rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	})
	record := rapid.Custom(func(t *rapid.T) delivery.Record {
		r := delivery.Record{Key: field.Draw(t, "key"), Value: field.Draw(t, "value")}
		if rapid.Bool().Draw(t, "dated") {
			r.Time = time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "time"))
		}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			r.Headers = append(r.Headers, delivery.Header{Key: rapid.String().Draw(t, "name"), Value: field.Draw(t, "header")})
		}
		return r
	})
	testservices.Few(t, 30, func(t *rapid.T) {
		records := rapid.SliceOfN(record, 1, 20).Draw(t, "records")
		e := beginBatch()
		var want []string
		for i := range records {
			e.add(&records[i], now)
			if records[i].Time.IsZero() {
				records[i].Time = now
			}
			want = append(want, shown(&records[i]))
		}
		set := e.set(rapid.Bool().Draw(t, "compressed"))
		e.end()

		const length = 4
		b, rest, ok, err := recordSet(set[length:]).next()
		if err != nil || !ok || len(rest) > 0 {
			t.Fatalf("no batch: %v, %d bytes left", err, len(rest))
		}
		in, err := newRecords(b, 1<<30, 1<<30, new(scratch))
		if err != nil {
			t.Fatal(err)
		}
		defer in.close()
		var theirs protocol.RecordSet
		if _, err := theirs.ReadFrom(bufio.NewReader(bytes.NewReader(set))); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			own, _, err := in.next(0)
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(&own); got != want[i] || own.Offset != int64(i) {
				t.Fatalf("record %d at %d:\n got %.1000s\nwant %.1000s", i, own.Offset, got, want[i])
			}
			old, err := theirs.Records.ReadRecord()
			if err != nil {
				t.Fatal(err)
			}
			read, err := readBack(old)
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(&read); got != want[i] || read.Offset != int64(i) {
				t.Fatalf("record %d at %d by kafka-go:\n got %.1000s\nwant %.1000s", i, read.Offset, got, want[i])
			}
		}
		if _, _, err := in.next(0); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last record: %v", err)
		}
	})
}
