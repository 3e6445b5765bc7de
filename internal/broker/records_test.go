package broker

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// sealed returns a batch as it is in a log.
func sealed(t testing.TB, base int64, a protocol.Attributes, version int8, records ...protocol.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	set := protocol.RecordSet{Version: version, Attributes: a, Records: protocol.NewRecordReader(records...)}
	if _, err := set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	log := b.Bytes()[4:]
	if version == 2 {
		binary.BigEndian.PutUint64(log, uint64(base)) // which the checksum does not cover
	}
	return log
}

// reseal corrects the checksum.
func reseal(log []byte) {
	binary.BigEndian.PutUint32(log[batchCRC:], crc32.Checksum(log[batchAttributes:], castagnoli))
}

func recordOf(key, value []byte, headers ...protocol.Header) protocol.Record {
	return protocol.Record{Key: protocol.NewBytes(key), Value: protocol.NewBytes(value), Headers: headers}
}

// readBack returns a record as kafka-go has read it.
func readBack(rec *protocol.Record) (delivery.Record, error) {
	key, keyErr := protocol.ReadAll(rec.Key)
	value, err := protocol.ReadAll(rec.Value)
	r := delivery.Record{Topic: "t", Offset: rec.Offset, Time: rec.Time, Key: key, Value: value}
	for _, h := range rec.Headers {
		r.Headers = append(r.Headers, delivery.Header(h))
	}
	return r, cmp.Or(keyErr, err)
}

// readLog reads a log as Fetch does.
func readLog(log []byte, from, limit int64) (got []delivery.Record, out Fetched, err error) {
	return readUpTo(log, from, limit, minBatch)
}

func readUpTo(log []byte, from, limit, most int64) (got []delivery.Record, out Fetched, err error) {
	out.Next = from
	visit := func(rec *delivery.Record) error { got = append(got, Clone(rec)); return nil }
	f := &fetching{at: Partition{"t", 0}, from: from, limit: limit, most: most, aborted: newAbortedReads(nil), out: &out, visit: visit}
	for set := recordSet(log); ; {
		b, rest, ok, err := set.next()
		if err != nil || !ok {
			return got, out, err
		}
		if err := f.read(b); err != nil {
			return got, out, err
		}
		set = rest
	}
}

// Whatever is written, with whichever compression, is read as kafka-go reads it, from any offset on.
func TestRecordsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var log []byte
		next := int64(0)
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			var records []protocol.Record
			for range rapid.IntRange(1, 6).Draw(rt, "records") {
				field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
				r := recordOf(field.Draw(rt, "key"), field.Draw(rt, "value"))
				for range rapid.IntRange(0, 3).Draw(rt, "headers") {
					r.Headers = append(r.Headers, protocol.Header{Key: rapid.StringN(0, 5, -1).Draw(rt, "name"), Value: field.Draw(rt, "header")})
				}
				records = append(records, r)
			}
			next += rapid.Int64Range(0, 3).Draw(rt, "gap")
			codec := protocol.Attributes(rapid.IntRange(0, 4).Draw(rt, "compression"))
			log = append(log, sealed(t, next, codec, 2, records...)...)
			next += int64(len(records))
		}
		from := rapid.Int64Range(0, next).Draw(rt, "from")
		got, out, err := readLog(log, from, 1<<20)
		if err != nil || out.Next != next || out.Records != len(got) {
			rt.Fatalf("%+v, want next %d: %v", out, next, err)
		}
		framed := binary.BigEndian.AppendUint32(nil, uint32(len(log)))
		var set protocol.RecordSet
		if _, err := set.ReadFrom(bytes.NewReader(append(framed, log...))); err != nil {
			rt.Fatal(err)
		}
		for {
			rec, err := set.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				rt.Fatal(err)
			}
			if rec.Offset < from {
				continue
			}
			want, err := readBack(rec)
			if err != nil || len(got) == 0 {
				rt.Fatalf("%d is missing: %v", rec.Offset, err)
			}
			if fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", want) || (got[0].Value == nil) != (want.Value == nil) {
				rt.Fatalf("got %+v, want %+v", got[0], want)
			}
			got = got[1:]
		}
		if len(got) > 0 {
			rt.Fatalf("%d records more", len(got))
		}
	})
}

// A record that is too large is passed over in little memory; those around it are read as they are.
func TestALargeRecordIsNotKept(t *testing.T) {
	const limit, large = 256 << 10, 40 << 20
	small := func() protocol.Record { return recordOf([]byte("k"), []byte("v")) }
	headers := []protocol.Header{{Key: "pacer-campaign", Value: []byte("c")}, {Key: "long", Value: make([]byte, 128<<10)}, {Key: "x"}}
	zeros := make([]byte, large)
	for codec := range compress.Compression(5) {
		t.Run(codec.String(), func(t *testing.T) {
			if codec == compress.None || codec == compress.Snappy { // would be larger than the broker's batches
				zeros = zeros[:4<<20]
			} else {
				zeros = zeros[:large]
			}
			log := sealed(t, 7, protocol.Attributes(codec), 2, small(), recordOf(zeros[:1000], zeros, headers...), small())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, out, err := readLog(log, 0, limit)
			runtime.ReadMemStats(&after)
			if err != nil || len(got) != 3 || out.Next != 10 {
				t.Fatalf("%d records, next %d: %v", len(got), out.Next, err)
			}
			if codec != compress.Snappy { // one block, as its producer made it
				if more := after.TotalAlloc - before.TotalAlloc; more > 24<<20 {
					t.Errorf("allocated %d bytes", more)
				}
			}
			f := got[1].Flaw
			if f == nil || f.Defect != delivery.ReasonTooLarge || f.Lost < int64(len(zeros)) || !strings.Contains(f.Detail, "max_record_bytes") {
				t.Errorf("flaw %+v", f)
			}
			if r := got[1]; r.Offset != 8 || r.Key != nil || r.Value != nil || len(r.Headers) != 0 {
				t.Errorf("kept %+v", r)
			}
			for _, i := range []int{0, 2} {
				if got[i].Flaw != nil || string(got[i].Value) != "v" || got[i].Offset != int64(7+i) {
					t.Errorf("%d: %+v", i, got[i])
				}
			}
		})
	}
}

// A batch that cannot be read, though its checksum is right, costs one dead letter for what remains of it, and what follows
// it is read.
func TestAnUnreadableBatchIsPassedOver(t *testing.T) {
	value := make([]byte, 3000)
	rnd := rand.NewChaCha8([32]byte{1})
	for codec := range compress.Compression(8) {
		for _, name := range []string{"cut", "garbage", "announces too much", "too few records"} {
			t.Run(codec.String()+" "+name, func(t *testing.T) {
				var records []protocol.Record
				for range 20 {
					_, _ = rnd.Read(value)
					records = append(records, recordOf(nil, slices.Clone(value)))
				}
				known := min(codec, 4)
				bad := sealed(t, 100, protocol.Attributes(known), 2, records...)
				binary.BigEndian.PutUint16(bad[batchAttributes:], uint16(codec))
				body := bad[batchHeader:]
				switch name {
				case "cut":
					bad = bad[:len(bad)*2/3]
					binary.BigEndian.PutUint32(bad[batchLength:], uint32(len(bad)-batchFrame))
				case "garbage":
					_, _ = rnd.Read(body)
				case "announces too much":
					for i := range body {
						body[i] = 0xff
					}
				default:
					binary.BigEndian.PutUint32(bad[batchHeader-4:], 21)
				}
				reseal(bad)
				log := slices.Concat(sealed(t, 99, 0, 2, recordOf(nil, []byte("before"))), bad, sealed(t, 120, 0, 2, recordOf(nil, []byte("after"))))
				got, out, err := readLog(log, 99, 1<<20)
				if err != nil || out.Next != 121 || string(got[0].Value) != "before" || string(got[len(got)-1].Value) != "after" {
					t.Fatalf("%d records, next %d: %v", len(got), out.Next, err)
				}
				flawed := 0
				for i, r := range got {
					if r.Flaw == nil {
						continue
					}
					flawed++
					if r.Flaw.Defect != delivery.ReasonUndecodable || r.Flaw.Lost == 0 || i != len(got)-2 || r.Offset != int64(99+i) ||
						!strings.Contains(r.Flaw.Detail, fmt.Sprintf("%d to 119", r.Offset)) {
						t.Errorf("flaw of %d: %+v", r.Offset, r.Flaw)
					}
				}
				if flawed != 1 && (name != "too few records" || flawed != 0) {
					t.Errorf("%d dead letters", flawed)
				}
			})
		}
	}
}

// TestLogsWithOthersInThem: a wrong checksum is an error of the connection or of the broker, and nothing is passed over; an incomplete batch is
// read again. A message of a format before Kafka 0.11 costs one dead letter, and what follows it is read. Where a batch of a later format
// ends is not known, so nothing behind it is read.
func TestLogsWithOthersInThem(t *testing.T) {
	good := sealed(t, 0, 0, 2, recordOf(nil, []byte("a")))
	second := sealed(t, 1, 0, 2, recordOf(nil, []byte("b")))
	damaged, later := slices.Clone(second), slices.Clone(second)
	damaged[len(damaged)-2] ^= 1
	later[batchMagic] = 3
	const fine = ""
	for name, c := range map[string]struct {
		log     []byte
		records int
		next    int64
		fails   string
		flawed  bool // the first record
	}{
		"damaged":         {slices.Concat(good, damaged), 1, 1, errDamaged.Error(), false},
		"incomplete":      {slices.Concat(good, second[:len(second)-5]), 1, 1, fine, false},
		"old":             {slices.Concat(sealed(t, 0, 0, 1, recordOf(nil, []byte("a"))), second), 2, 2, fine, true},
		"old, compressed": {slices.Concat(sealed(t, 0, protocol.Gzip, 1, recordOf(nil, []byte("a"))), second), 2, 2, fine, true},
		"later":           {slices.Concat(good, later, second), 1, 1, "format 3", false},
	} {
		got, out, err := readLog(c.log, 0, 1<<20)
		if len(got) != c.records || out.Next != c.next || (err != nil) != (c.fails != fine) || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %d records, next %d: %v", name, len(got), out.Next, err)
			continue
		}
		if last := got[len(got)-1]; c.records == 2 && string(last.Value) != "b" {
			t.Errorf("%s: %+v follows", name, last)
		}
		f := got[0].Flaw
		if c.flawed != (f != nil) || f != nil && (f.Defect != delivery.ReasonUndecodable || !strings.Contains(f.Detail, "publish its jobs again")) {
			t.Errorf("%s: flaw %+v", name, f)
		}
	}
}

// A batch that contains much more than the largest record is read up to a limit.
func TestABatchIsDecompressedUpToALimit(t *testing.T) {
	const limit = 64 << 10
	var records []protocol.Record
	for range 2 * maxExpansion {
		records = append(records, recordOf(nil, make([]byte, limit-100)))
	}
	got, out, err := readUpTo(sealed(t, 0, protocol.Zstd, 2, records...), 0, limit, limit*maxExpansion)
	if err != nil || out.Next != 2*maxExpansion || len(got) != maxExpansion+1 || got[maxExpansion].Flaw == nil {
		t.Errorf("%d records, next %d: %v", len(got), out.Next, err)
	}
}

// Bytes from outside never panic, and a log is never read backwards.
func FuzzRecordSet(f *testing.F) {
	for codec := range protocol.Attributes(5) {
		f.Add(sealed(f, 3, codec, 2, recordOf([]byte("k"), []byte("v"), protocol.Header{Key: "h"}), recordOf(nil, nil)))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		if len(log) > batchHeader {
			binary.BigEndian.PutUint32(log[batchLength:], uint32(len(log)-batchFrame))
			log[batchMagic] = 2
			reseal(log)
		}
		if _, out, err := readLog(log, 3, 1<<10); err == nil && out.Next < 3 {
			t.Fatalf("next %d", out.Next)
		}
	})
}
