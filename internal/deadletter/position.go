package deadletter

import (
	"errors"
	"strconv"
	"strings"
)

// Position is where Newest has come to: of each partition, the offset before which letters were not taken yet.
type Position []int64

func positionOf(heads []*head) Position {
	p := make(Position, len(heads))
	for i, h := range heads {
		p[i] = h.end
	}
	return p
}

// maxPosition bounds the partitions of a Position that is read: the topic of the dead letters has far fewer.
const maxPosition = 10_000

var errPosition = errors.New("this is no place in the list of dead letters; begin again without it")

// String writes a position for an address; ParsePosition reads it.
func (p Position) String() string {
	offsets := make([]string, len(p))
	for i, offset := range p {
		offsets[i] = strconv.FormatInt(max(0, offset), 10)
	}
	return strings.Join(offsets, "_")
}

// ParsePosition reads what String has written; "" is the newest letter.
func ParsePosition(text string) (p Position, err error) {
	if text == "" {
		return nil, nil
	}
	for offset := range strings.SplitSeq(text, "_") {
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil || n < 0 || len(p) == maxPosition {
			return nil, errPosition
		}
		p = append(p, n)
	}
	return p, nil
}
