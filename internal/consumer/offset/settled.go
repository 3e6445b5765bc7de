package offset

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// maxMetadata is the number of characters that a broker stores with a committed offset by default.
const maxMetadata = 4096

// maxRawMetadata is the number of bytes that fit into it in base64 beside the topic, less the frame.
const maxRawMetadata = (maxMetadata-topicChars-1)/4*3 - frameOverhead

// topicChars is how many characters of the id of its topic a commit has, after a dot. Topics get random ids.
const topicChars = 8

// InTopic returns metadata that names the topic: names of topics are used again, and the broker stores offsets by name.
func InTopic(metadata string, topic delivery.TopicID) string {
	if !topic.Known() {
		return metadata
	}
	return metadata + "." + topic.String()[:topicChars]
}

// Names reports whether metadata names a topic, and whether that is this one.
func Names(metadata string, topic delivery.TopicID) (one, this bool) {
	_, named, one := strings.Cut(metadata, ".")
	return one, one && topic.Known() && named == topic.String()[:topicChars]
}

// Position is the content of a commit of a partition: the offset before which everything is settled, and metadata for
// RestoreWindow or RestoreLane with what is settled beyond it.
type Position struct {
	Offset   int64
	Metadata string
	Trimmed  bool // the metadata has no room for all settled offsets: after a crash some records are handed over again
}

// span is the offsets from first to last, both included.
type span struct{ first, last int64 }

// appendSpan appends the offsets from first to last, if there are any, to spans that ascend and end before or at them.
func appendSpan(spans []span, first, last int64) []span {
	switch n := len(spans); {
	case first > last:
	case n > 0 && spans[n-1].last+1 >= first:
		spans[n-1].last = last
	default:
		spans = append(spans, span{first, last})
	}
	return spans
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
	kindWindow byte = 1 // see runs.go
	kindLane   byte = 2 // see lanemeta.go
)

// metadataVersion is the first byte of the frame. Metadata of another version is an error: that of a Window is treated as missing,
// which sends up to MaxOpen jobs twice rather than never, and a lane is held.
const metadataVersion byte = 1

// The frame is version, kind, body, and a checksum of these and of the committed offset. Because of the offset in the
// checksum, metadata that a tool has copied to another offset is rejected.
const frameOverhead = 2 + crc32.Size

var errForeignMetadata = errors.New("pacer did not write this metadata for this offset")

var metadataEncoding = base64.RawStdEncoding

// encodeSettled packs the spans settled beyond the committed offset base. If they do not fit, those that lie farthest are
// left out, and trimmed is true.
func encodeSettled(base int64, spans []span) (metadata string, trimmed bool) {
	for len(spans) > 0 {
		if body := appendRuns(nil, base, spans); len(body) <= maxRawMetadata {
			return frame(base, kindWindow, body), trimmed
		}
		spans, trimmed = spans[:len(spans)/2], true
	}
	return "", trimmed
}

// decodeSettled reads the output of encodeSettled.
func decodeSettled(base int64, metadata string) ([]span, error) {
	body, err := unframe(base, kindWindow, metadata)
	if err != nil {
		return nil, err
	}
	return readRuns(base, body)
}

// frame wraps the body. It is not compressed: a compressor for every commit of every partition costs more than the bytes
// it saves.
func frame(base int64, kind byte, body []byte) string {
	raw := append([]byte{metadataVersion, kind}, body...)
	return metadataEncoding.EncodeToString(binary.BigEndian.AppendUint32(raw, frameSum(base, raw)))
}

// unframe returns the body of metadata of a kind; nil if there is none.
func unframe(base int64, kind byte, metadata string) (body []byte, err error) {
	if metadata, _, _ = strings.Cut(metadata, "."); metadata == "" {
		return nil, nil
	}
	raw, err := metadataEncoding.DecodeString(metadata)
	if err != nil || len(metadata) > maxMetadata || len(raw) < frameOverhead {
		return nil, errForeignMetadata
	}
	raw, sum := raw[:len(raw)-crc32.Size], binary.BigEndian.Uint32(raw[len(raw)-crc32.Size:])
	switch {
	case frameSum(base, raw) != sum:
		return nil, errForeignMetadata
	case raw[0] != metadataVersion:
		return nil, fmt.Errorf("metadata of version %d: this daemon reads version %d", raw[0], metadataVersion)
	case raw[1] != kind:
		return nil, fmt.Errorf("metadata of kind %d: %w", raw[1], errForeignMetadata)
	}
	return raw[2:], nil
}

func frameSum(base int64, raw []byte) uint32 {
	var offset [8]byte
	binary.BigEndian.PutUint64(offset[:], uint64(base))
	return crc32.Update(crc32.ChecksumIEEE(offset[:]), crc32.IEEETable, raw)
}

// maxRun bounds the runs of settled offsets in metadata.
const maxRun = 1 << 48

// Unsettled decodes a committed offset and its metadata as the next owner of the partition would, to count what is
// left while no daemon runs. The function it returns reports whether the record of a campaign at an offset is not
// settled. In a lane that depends on the campaign; elsewhere the campaign is ignored. The error is for metadata that
// cannot be read.
func Unsettled(lane bool, committed int64, metadata string) (open func(campaign string, offset int64) bool, err error) {
	if lane {
		l, err := RestoreLane(committed, metadata)
		if err != nil {
			return nil, fmt.Errorf("read the commit of a lane: %w", err)
		}
		return func(campaign string, offset int64) bool {
			if c := l.campaigns[delivery.CampaignHash(campaign)]; c != nil {
				return offset >= c.settledTo || offset >= c.next && l.pending[offset] != nil
			}
			return offset >= l.main
		}, nil
	}
	w, err := RestoreWindow(committed, metadata)
	if err != nil {
		return nil, fmt.Errorf("read a commit: %w", err)
	}
	return func(_ string, offset int64) bool { return !w.Restored(offset) }, nil
}
