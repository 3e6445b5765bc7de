package offset

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/pacer/pacer/internal/delivery"
)

// maxMetadata is the number of characters that a broker stores with a committed offset by default.
const maxMetadata = 4096

// maxRawMetadata is the number of bytes that fit into it in base64, less the frame.
const maxRawMetadata = maxMetadata/4*3 - frameOverhead

// span is the offsets from first to last, both included.
type span struct{ first, last int64 }

// covered reports whether one of the spans, which ascend, contains the offset.
func covered(spans []span, offset int64) bool {
	for _, s := range spans {
		if offset <= s.last {
			return offset >= s.first
		}
	}
	return false
}

// before returns the parts of the spans, which ascend, that lie before the offset.
func before(spans []span, offset int64) []span {
	for i, s := range spans {
		switch {
		case s.first >= offset:
			return spans[:i]
		case s.last >= offset:
			spans[i].last = offset - 1
			return spans[:i+1]
		}
	}
	return spans
}

// Kinds of metadata, the second byte of the frame.
const (
	kindRanges byte = 1 // uvarint pairs: gap since the last span, length - 1
	kindBitmap byte = 2 // bit i of byte i/8: offset base+1+i
	kindLane   byte = 3 // see lanemeta.go; no longer written
	// kindLaneCounts is kindLane with the number of waiting records in each entry.
	kindLaneCounts byte = 4
)

// metadataVersion is the first byte of the frame. Metadata of an unknown version is an error: a daemon of another release
// treats that of a Window as missing, which sends up to MaxWindow jobs twice rather than never, and holds a lane.
const metadataVersion byte = 1

// The frame is version, kind, body, and a checksum of these and of the committed offset. Because of the offset in the
// checksum, metadata that a tool has copied to another offset is rejected.
const frameOverhead = 2 + crc32.Size

var errForeignMetadata = errors.New("not written by this version of pacer for this offset")

var metadataEncoding = base64.RawStdEncoding

// encodeSettled packs the spans settled beyond the committed offset base. They must lie within MaxWindow of base.
func encodeSettled(base int64, spans []span) string {
	if len(spans) == 0 {
		return ""
	}
	kind, body := kindRanges, appendRanges(nil, base, spans)
	if bits := int(spans[len(spans)-1].last - base); len(body) > (bits+7)/8 {
		kind, body = kindBitmap, bitmapOf(base, bits, spans)
	}
	return frame(base, kind, body)
}

// decodeSettled reads the output of encodeSettled.
func decodeSettled(base int64, metadata string) ([]span, error) {
	if metadata == "" {
		return nil, nil
	}
	kind, body, err := unframe(base, metadata)
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindRanges:
		return readRanges(base, body)
	case kindBitmap:
		return readBitmap(base, body), nil
	}
	return nil, fmt.Errorf("metadata of kind %d: %w", kind, errForeignMetadata)
}

// frame wraps the body. It is not compressed: a bitmap of MaxWindow fits as it is, and a compressor for every commit
// of every partition costs more than the bytes it saves.
func frame(base int64, kind byte, body []byte) string {
	raw := append([]byte{metadataVersion, kind}, body...)
	return metadataEncoding.EncodeToString(binary.BigEndian.AppendUint32(raw, frameSum(base, raw)))
}

func unframe(base int64, metadata string) (kind byte, body []byte, err error) {
	if len(metadata) > maxMetadata {
		return 0, nil, errForeignMetadata
	}
	raw, err := metadataEncoding.DecodeString(metadata)
	if err != nil || len(raw) < frameOverhead || raw[0] != metadataVersion {
		return 0, nil, errForeignMetadata
	}
	raw, sum := raw[:len(raw)-crc32.Size], binary.BigEndian.Uint32(raw[len(raw)-crc32.Size:])
	if frameSum(base, raw) != sum {
		return 0, nil, errForeignMetadata
	}
	return raw[1], raw[2:], nil
}

func frameSum(base int64, raw []byte) uint32 {
	var offset [8]byte
	binary.BigEndian.PutUint64(offset[:], uint64(base))
	return crc32.Update(crc32.ChecksumIEEE(offset[:]), crc32.IEEETable, raw)
}

// appendRanges appends the spans as pairs of uvarints: the gap since the previous one, or since at, and the length
// less one.
func appendRanges(b []byte, at int64, spans []span) []byte {
	for _, s := range spans {
		b = binary.AppendUvarint(b, uint64(s.first-at))
		b = binary.AppendUvarint(b, uint64(s.last-s.first))
		at = s.last
	}
	return b
}

func readRanges(base int64, body []byte) ([]span, error) {
	var spans []span
	at := base
	for len(body) > 0 {
		gap, n := binary.Uvarint(body)
		length, m := binary.Uvarint(body[max(n, 0):])
		if n <= 0 || m <= 0 || gap == 0 || gap > maxBitmapBits || length > maxBitmapBits {
			return nil, errForeignMetadata
		}
		body = body[n+m:]
		s := span{at + int64(gap), at + int64(gap) + int64(length)}
		if s.last-base > maxBitmapBits {
			return nil, errForeignMetadata
		}
		spans, at = append(spans, s), s.last
	}
	return spans, nil
}

// maxBitmapBits bounds the distance of restored spans from the committed offset, and so the memory they take.
const maxBitmapBits = 8 * maxMetadata

func bitmapOf(base int64, bits int, spans []span) []byte {
	b := make([]byte, (bits+7)/8)
	for _, s := range spans {
		for o := s.first; o <= s.last; o++ {
			i := o - base - 1
			b[i/8] |= 1 << (i % 8)
		}
	}
	return b
}

func readBitmap(base int64, body []byte) []span {
	var spans []span
	for i := int64(0); i < int64(len(body))*8; i++ {
		if body[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		o := base + 1 + i
		if n := len(spans); n > 0 && spans[n-1].last == o-1 {
			spans[n-1].last = o
		} else {
			spans = append(spans, span{o, o})
		}
	}
	return spans
}

// Unsettled decodes a committed offset and its metadata as the next owner of the partition would, to count what is
// left while no daemon runs. The function it returns reports whether the record of a campaign at an offset is not
// settled. In a lane that depends on the campaign; elsewhere the campaign is ignored. The error is for metadata that
// cannot be read.
func Unsettled(lane bool, committed int64, metadata string) (open func(campaign string, offset int64) bool, err error) {
	if lane {
		p, err := decodeLane(committed, metadata)
		if err != nil {
			return nil, fmt.Errorf("read the commit of a lane: %w", err)
		}
		return p.unsettled, nil
	}
	spans, err := decodeSettled(committed, metadata)
	if err != nil {
		return nil, fmt.Errorf("read a commit: %w", err)
	}
	return func(_ string, offset int64) bool { return offset >= committed && !covered(spans, offset) }, nil
}

// unsettled reports whether the record at offset is open: for a campaign with a position of its own from its low on,
// for all others from the main position on.
func (p lanePositions) unsettled(campaign string, offset int64) bool {
	hash := delivery.CampaignHash(campaign)
	for _, e := range p.entries {
		if e.hash == hash {
			return offset >= e.low && !covered(e.settled, offset)
		}
	}
	return offset >= p.main
}
