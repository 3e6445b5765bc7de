package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recordSet is a part of a log: batches, the last one perhaps incomplete.
type recordSet []byte

// logBatch is one batch of a log. If its Magic is not that of Kafka 0.11, only FirstOffset, last and Records are known.
type logBatch struct {
	kmsg.RecordBatch
	last int64 // offset; compaction may have removed its record
}

func (b *logBatch) attributes() protocol.Attributes { return protocol.Attributes(b.Attributes) }

// magic is the version of the format that Kafka has written since 0.11. It lies at the same place in every format, and so does the
// length.
const magic = 2

// Places in the header of a batch: https://kafka.apache.org/documentation/#recordbatch.
const (
	batchLength     = 8
	batchFrame      = 12 // what the length does not count
	batchMagic      = 16
	batchCRC        = 17
	batchAttributes = 21
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
	length := int64(int32(binary.BigEndian.Uint32(s[batchLength:]))) + batchFrame
	if length > int64(len(s)) {
		return b, nil, false, nil
	}
	if length <= batchMagic {
		return b, nil, false, fmt.Errorf("%w: its length is %d", errDamaged, length)
	}
	whole, rest := s[:length], s[length:]
	b.FirstOffset = int64(binary.BigEndian.Uint64(s))
	switch is := whole[batchMagic]; {
	case is < magic:
		b.Magic, b.last, b.Records = int8(is), b.FirstOffset, whole
		return b, rest, true, nil
	case is > magic: // where it ends is not known, so nothing can be passed over
		return b, nil, false, fmt.Errorf("the batch at offset %d has format %d, and pacer reads format %d", b.FirstOffset, is, magic)
	}
	if err = b.ReadFrom(whole); err != nil {
		return b, nil, false, fmt.Errorf("%w: its length is %d", errDamaged, length)
	}
	if got := crc32.Checksum(whole[batchAttributes:], castagnoli); got != uint32(b.CRC) {
		return b, nil, false, fmt.Errorf("%w: its checksum is %08x, not %08x", errDamaged, got, uint32(b.CRC))
	}
	b.last = b.FirstOffset + max(int64(b.LastOffsetDelta), 0)
	return b, rest, true, nil
}
