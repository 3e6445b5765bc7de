package offset

import (
	"encoding/binary"
	"slices"
)

// The metadata of a window says which offsets beyond the committed one are settled.
//
// The offsets are divided into chunks of eight, by their absolute value, so that a chunk stays the same when the committed offset moves.
// The body begins with the chunk of the committed offset, and consists of pairs. A pair is a number of wholly settled chunks, then a
// number of other chunks. Each of the latter has a byte, with a bit for every settled offset. Both numbers are uvarints. The second may
// be missing at the end.
//
// The size of a body depends only on the chunks that are not wholly settled. Settling a chunk never makes it longer: one between others
// begins a new pair only where this is shorter. So the size that a meter finds for the open offsets is one that no body exceeds,
// whichever of them are settled until then.

const chunkBits = 3

// worthwhile is how many settled chunks begin a new pair: its two numbers take less.
const worthwhile = 4

// meter is the number of bytes that a body takes at most, for the open offsets that were added.
type meter struct {
	done    int   // bytes of all pairs but the last one's chunks
	literal int64 // chunks of the last pair
	last    int64 // the last chunk that was added; before the first one, that before the first of the body
}

// spare is the space for what a body holds behind the last open offset: settled chunks, and a part of a chunk.
const spare = 2*binary.MaxVarintLen64 + 1

func newMeter(base int64) meter { return meter{done: spare, last: base>>chunkBits - 1} }

// add adds an open offset. Offsets ascend.
func (m *meter) add(offset int64) {
	chunk := offset >> chunkBits
	switch full := chunk - m.last - 1; {
	case full < 0: // another one of the same chunk
		return
	case full < worthwhile:
		m.literal += full + 1
	default:
		m.done += uvarintLen(m.literal) + int(m.literal) + uvarintLen(full)
		m.literal = 1
	}
	m.last = chunk
}

// addRange adds the offsets from first to last.
func (m *meter) addRange(first, last int64) {
	m.add(first)
	m.literal += last>>chunkBits - m.last
	m.last = last >> chunkBits
}

// bytes returns the number of bytes.
func (m *meter) bytes() int { return m.done + uvarintLen(m.literal) + int(m.literal) }

func uvarintLen(n int64) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// appendRuns appends the body for spans, which ascend, do not touch each other, and lie beyond base.
func appendRuns(b []byte, base int64, spans []span) []byte {
	var (
		at      = base >> chunkBits // the next chunk
		full    int64               // chunks of the pair that are settled as a whole
		literal []byte              // chunks of the pair that follow them
	)
	settled := func(n int64) { // n chunks follow that are settled as a whole
		switch {
		case n == 0:
		case len(literal) == 0:
			full += n
		case n < worthwhile:
			literal = append(literal, slices.Repeat([]byte{0xff}, int(n))...)
		default:
			b = appendPair(b, full, literal)
			full, literal = n, literal[:0]
		}
		at += n
	}
	var bits byte // of the chunk at
	flush := func() {
		if bits == 0xff {
			bits = 0
			settled(1)
			return
		}
		literal, bits = append(literal, bits), 0
		at++
	}
	for _, s := range spans {
		if first := s.first >> chunkBits; first > at {
			flush()
			literal = append(literal, make([]byte, first-at)...)
			at = first
		}
		for o := s.first; o <= s.last; {
			if o&7 == 0 && s.last-o >= 7 {
				n := (s.last + 1 - o) >> chunkBits
				settled(n)
				o += n << chunkBits
				continue
			}
			bits |= 1 << (o & 7)
			if o&7 == 7 {
				flush()
			}
			o++
		}
	}
	if bits != 0 {
		flush()
	}
	return appendPair(b, full, literal)
}

func appendPair(b []byte, full int64, literal []byte) []byte {
	b = binary.AppendUvarint(b, uint64(full))
	if len(literal) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(literal)))
	return append(b, literal...)
}

// readRuns reads the output of appendRuns.
func readRuns(base int64, body []byte) ([]span, error) {
	var spans []span
	add := func(first, last int64) { spans = appendSpan(spans, max(first, base+1), last) }
	chunk := base >> chunkBits
	for len(body) > 0 {
		full, n := binary.Uvarint(body)
		if n <= 0 || full > maxRun {
			return nil, errForeignMetadata
		}
		body = body[n:]
		add(chunk<<chunkBits, (chunk+int64(full))<<chunkBits-1)
		chunk += int64(full)
		if len(body) == 0 {
			break
		}
		literal, n := binary.Uvarint(body)
		if n <= 0 || literal > uint64(len(body)-n) {
			return nil, errForeignMetadata
		}
		for _, bits := range body[n : n+int(literal)] {
			for i := range int64(8) {
				if bits&(1<<i) != 0 {
					add(chunk<<chunkBits+i, chunk<<chunkBits+i)
				}
			}
			chunk++
		}
		body = body[n+int(literal):]
	}
	return spans, nil
}
