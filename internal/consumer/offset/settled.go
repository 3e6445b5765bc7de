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
	kindRuns       byte = 5 // see runs.go; only for what the first two have no room for
)

// metadataVersion is the first byte of the frame. Metadata of an unknown version is an error: a daemon of another release
// treats that of a Window as missing, which sends up to MaxWindow jobs twice rather than never, and holds a lane.
const metadataVersion byte = 1

// The frame is version, kind, body, and a checksum of these and of the committed offset. Because of the offset in the
// checksum, metadata that a tool has copied to another offset is rejected.
const frameOverhead = 2 + crc32.Size

var errForeignMetadata = errors.New("not written by this version of pacer for this offset")

var metadataEncoding = base64.RawStdEncoding

// encodeSettled packs the spans settled beyond the committed offset base. If they do not fit, those that lie farthest are
// left out, and trimmed is true.
func encodeSettled(base int64, spans []span) (metadata string, trimmed bool) {
	for len(spans) > 0 {
		kind, body := kindRanges, appendRanges(nil, base, spans)
		if bits := spans[len(spans)-1].last - base; int64(len(body)) > (bits+7)/8 {
			kind, body = kindBitmap, bitmapOf(base, int(bits), spans)
		}
		if len(body) > maxRawMetadata {
			kind, body = kindRuns, appendRuns(nil, base, spans)
		}
		if len(body) <= maxRawMetadata {
			return frame(base, kind, body), trimmed
		}
		spans, trimmed = spans[:len(spans)/2], true
	}
	return "", trimmed
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
	case kindRuns:
		return readRuns(base, body)
	}
	return nil, fmt.Errorf("metadata of kind %d: %w", kind, errForeignMetadata)
}

// frame wraps the body. It is not compressed: a compressor for every commit of every partition costs more than the bytes
// it saves.
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
		if n <= 0 || m <= 0 || gap == 0 || gap > maxGap || length > maxRun {
			return nil, errForeignMetadata
		}
		body = body[n+m:]
		s := span{at + int64(gap), at + int64(gap) + int64(length)}
		if s.last < base {
			return nil, errForeignMetadata
		}
		spans, at = append(spans, s), s.last
	}
	return spans, nil
}

// Bounds of the runs of offsets in metadata: of those that are not settled, which are open or were not read, and of those
// that are.
const (
	maxGap = 8 * maxMetadata
	maxRun = 1 << 48
)

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
