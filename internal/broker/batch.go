package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/segmentio/kafka-go/protocol"
)

// recordSet is a part of a log: batches, the last of which may be incomplete.
type recordSet []byte

// logBatch is one batch of a log.
type logBatch struct {
	attributes  protocol.Attributes
	first, last int64 // offsets; compaction may have removed their records
	since       int64 // the time that those of the records are relative to, in Unix milliseconds
	producer    int64
	records     int    // how many there are
	body        []byte // the records, compressed as the attributes say
	magic       byte   // the version of the format; if it is not that of Kafka 0.11, only first, last and body are known
}

// magic is the version of the format that Kafka has written since 0.11. It lies at the same place in every format, and so does the
// length.
const magic = 2

// Places in the header of a batch: https://kafka.apache.org/documentation/#recordbatch.
const (
	batchLength     = 8
	batchFrame      = 12 // what the length does not count
	batchEpoch      = 12
	batchMagic      = 16
	batchCRC        = 17
	batchAttributes = 21
	batchLastDelta  = 23
	batchSince      = 27
	batchLatest     = 35
	batchProducer   = 43
	batchRecords    = 57
	batchHeader     = 61
)

var (
	errDamaged = errors.New("a batch is damaged")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// next returns the first batch of the set and the rest of it; ok is false if the set has no complete one.
func (s recordSet) next() (b logBatch, rest recordSet, ok bool, err error) {
	if len(s) <= batchMagic {
		return b, nil, false, nil
	}
	b.first = int64(binary.BigEndian.Uint64(s))
	length := int64(int32(binary.BigEndian.Uint32(s[batchLength:]))) + batchFrame
	if length > int64(len(s)) {
		return b, nil, false, nil
	}
	if length <= batchMagic {
		return b, nil, false, fmt.Errorf("%w: its length is %d", errDamaged, length)
	}
	whole, rest := s[:length], s[length:]
	switch b.magic = whole[batchMagic]; {
	case b.magic < magic:
		b.last, b.body = b.first, whole
		return b, rest, true, nil
	case b.magic > magic: // where it ends is not known, so nothing can be passed over
		return b, nil, false, fmt.Errorf("the batch at offset %d has format %d, and pacer reads format %d", b.first, b.magic, magic)
	}
	if length < batchHeader {
		return b, nil, false, fmt.Errorf("%w: its length is %d", errDamaged, length)
	}
	if got, want := crc32.Checksum(whole[batchAttributes:], castagnoli), binary.BigEndian.Uint32(whole[batchCRC:]); got != want {
		return b, nil, false, fmt.Errorf("%w: its checksum is %08x, not %08x", errDamaged, got, want)
	}
	b.attributes = protocol.Attributes(binary.BigEndian.Uint16(whole[batchAttributes:]))
	b.last = b.first + max(int64(int32(binary.BigEndian.Uint32(whole[batchLastDelta:]))), 0)
	b.since = int64(binary.BigEndian.Uint64(whole[batchSince:]))
	b.producer = int64(binary.BigEndian.Uint64(whole[batchProducer:]))
	b.records = int(int32(binary.BigEndian.Uint32(whole[batchRecords:])))
	b.body = whole[batchHeader:]
	return b, rest, true, nil
}
