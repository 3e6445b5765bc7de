package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
)

// maxWindow is the largest history that a zstd stream may refer to, and which a decoder keeps: that of the highest level.
const maxWindow = 128 << 20

var errExpands = errors.New("it contains more than is accepted of one batch")

// decompress returns the content of a batch, up to limit bytes. Only what was read last is kept: a few hundred kilobytes, the window of
// zstd, a block of LZ4 (4 MiB), or of Snappy. Call done afterwards.
func decompress(c compress.Compression, body []byte, limit int64) (content io.Reader, done func(), err error) {
	in := bytes.NewReader(body)
	switch c {
	case compress.None:
		return in, func() {}, nil
	case compress.Zstd:
		d, err := newZstd(in)
		if err != nil {
			return nil, nil, err
		}
		return &limited{d, limit}, func() { freeZstd(d) }, nil
	case compress.Snappy:
		if err := checkSnappy(body, limit); err != nil {
			return nil, nil, err
		}
	}
	codec := c.Codec()
	if codec == nil {
		return nil, nil, fmt.Errorf("there is no compression %d", c)
	}
	r := codec.NewReader(in)
	return &limited{r, limit}, func() { _ = r.Close() }, nil
}

// limited fails after a number of bytes.
type limited struct {
	in   io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errExpands
	}
	n, err := l.in.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// zstds are decoders to be used again. The one of kafka-go has no limit of its window.
var zstds sync.Pool // of *zstd.Decoder

func newZstd(in io.Reader) (*zstd.Decoder, error) {
	if d, ok := zstds.Get().(*zstd.Decoder); ok {
		return d, d.Reset(in)
	}
	return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}

func freeZstd(d *zstd.Decoder) {
	if d.Reset(nil) == nil { // lets go of the batch
		zstds.Put(d)
	}
}

// maxSnappyRatio is more than Snappy can achieve: a copy of 64 bytes takes three.
const maxSnappyRatio = 32

// checkSnappy returns an error if the blocks announce more than they can contain, or than limit: their decoder reserves what
// they announce.
func checkSnappy(body []byte, limit int64) error {
	const head, size = 16, 4 // of the framing that Java uses
	if !bytes.HasPrefix(body, []byte("\x82SNAPPY\x00")) || len(body) < head {
		return checkSnappyBlock(body, limit)
	}
	for b := body[head:]; len(b) > 0; {
		if len(b) < size {
			return io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(b))
		if b = b[size:]; n > int64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		if err := checkSnappyBlock(b[:n], limit); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func checkSnappyBlock(b []byte, limit int64) error {
	announced, n := binary.Uvarint(b)
	if n <= 0 || announced > uint64(min(limit, int64(len(b))*maxSnappyRatio)) {
		return errExpands
	}
	return nil
}
