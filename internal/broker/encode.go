package broker

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
)

// kafka-go passes each field of a record to the compressor on its own, which takes longer than compressing. So this package
// encodes batches itself, and compresses each as a whole.

// encoder encodes records as one batch. It is not safe for concurrent use; the zero value is ready.
type encoder struct {
	records     []byte // encoded one after the other, not compressed
	count       int
	first, last int64 // the time of the first record and the latest time, in Unix milliseconds
}

// add adds a record; it does not keep its memory. One without a time is written at now.
func (e *encoder) add(r *delivery.Record, now time.Time) {
	at := r.Time.UnixMilli()
	if r.Time.IsZero() {
		at = now.UnixMilli()
	}
	if e.count == 0 {
		e.first, e.last = at, at
	}
	e.last = max(e.last, at)
	const attributes = 0 // of a record; they are not used
	since, number, headers := at-e.first, int32(e.count), int32(len(r.Headers))
	size := 1 + kbin.VarlongLen(since) + kbin.VarintLen(number) + sizeOf(r.Key) + sizeOf(r.Value) + kbin.VarintLen(headers)
	for _, h := range r.Headers {
		size += sizeOf(h.Key) + sizeOf(h.Value)
	}
	b := kbin.AppendVarint(slices.Grow(e.records, size+binary.MaxVarintLen32), int32(size))
	b = kbin.AppendInt8(b, attributes)
	b = kbin.AppendVarlong(b, since)
	b = kbin.AppendVarint(b, number)
	b = kbin.AppendVarintBytes(b, r.Key)
	b = kbin.AppendVarintBytes(b, r.Value)
	b = kbin.AppendVarint(b, headers)
	for _, h := range r.Headers {
		b = kbin.AppendVarintString(b, h.Key)
		b = kbin.AppendVarintBytes(b, h.Value)
	}
	e.records = b
	e.count++
}

// sizeOf is how many bytes a field takes with its length; null is as long as an empty one.
func sizeOf[F string | []byte](field F) int { return kbin.VarintLen(int32(len(field))) + len(field) }

// set returns the batch with its length before it, as it is in a request, in memory of its own.
func (e *encoder) set(compressed bool) []byte {
	const length, none = 4, -1 // bytes before the batch; what is not known
	expected := len(e.records)
	if compressed {
		expected /= 4
	}
	set := make([]byte, length+batchHeader, length+batchHeader+expected)
	if compressed {
		set = pack(set, e.records)
	} else {
		set = append(set, e.records...)
	}
	binary.BigEndian.PutUint32(set, uint32(len(set)-length))
	b := set[length:]
	head := kmsg.RecordBatch{
		Length: int32(len(b) - batchFrame), PartitionLeaderEpoch: none, Magic: magic, LastOffsetDelta: int32(e.count - 1), FirstTimestamp: e.first,
		MaxTimestamp: e.last, ProducerID: none, ProducerEpoch: none, FirstSequence: none, NumRecords: int32(e.count),
	}
	if compressed {
		head.Attributes = int16(compress.Zstd)
	}
	head.AppendTo(b[:0])
	binary.BigEndian.PutUint32(b[batchCRC:], crc32.Checksum(b[batchAttributes:], castagnoli))
	return set
}

// pack appends content, compressed, to b. The lowest level takes two thirds of the time of the default, and batches of jobs become no
// larger (BenchmarkBatch). A batch has a checksum of its own.
func pack(b, content []byte) []byte {
	w, ok := packers.Get().(*zstd.Encoder)
	out := bytes.NewBuffer(b)
	if !ok {
		w, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	}
	w.ResetContentSize(out, int64(len(content)))
	_, _ = w.Write(content) // these fail as a buffer does: never
	_ = w.Close()
	w.Reset(nil) // lets go of the buffer
	packers.Put(w)
	return out.Bytes()
}

// packers are compressors to be used again. EncodeAll would need one for all goroutines, whose channel is of one test's bubble.
var packers sync.Pool // of *zstd.Encoder

// encoders have memory for batches that are encoded, which is not that of the batch.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

// maxKeptEncoder bounds the memory of an encoder, in bytes, that is kept.
const maxKeptEncoder = 1 << 20

// beginBatch returns an encoder for a batch; end gives it back.
func beginBatch() *encoder { return encoders.Get().(*encoder) }

func (e *encoder) end() {
	if cap(e.records) > maxKeptEncoder {
		return
	}
	*e = encoder{records: e.records[:0]}
	encoders.Put(e)
}
