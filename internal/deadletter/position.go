package deadletter

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Position is where Newest has come to: of each partition, the offset before which letters were not taken yet.
type Position []int64

func positionOf(heads []*backwards) Position {
	p := make(Position, len(heads))
	for i, b := range heads {
		if p[i] = b.end; len(b.letters) > 0 {
			p[i] = b.last().Place.Offset + 1
		}
	}
	return p
}

// maxPosition bounds the partitions of a Position that is read: the topic of the dead letters has far fewer.
const maxPosition = 10_000

var errPosition = errors.New("this is no place in the list of dead letters; begin again without it")

// String writes a position for an address; ParsePosition reads it.
func (p Position) String() string {
	b := []byte{1} // version
	for _, offset := range p {
		b = binary.AppendUvarint(b, uint64(max(0, offset)))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParsePosition reads what String has written; "" is the newest letter.
func ParsePosition(text string) (p Position, err error) {
	if text == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 2 || b[0] != 1 {
		return nil, errPosition
	}
	for b = b[1:]; len(b) > 0; {
		offset, n := binary.Uvarint(b)
		if n <= 0 || offset > 1<<62 || len(p) == maxPosition {
			return nil, errPosition
		}
		p, b = append(p, int64(offset)), b[n:]
	}
	return p, nil
}
