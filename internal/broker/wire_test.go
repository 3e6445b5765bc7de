package broker

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAnswersAreBounded: an answer that is said to be larger than any can be is not read, and neither is one that there is no room for.
func TestAnswersAreBounded(t *testing.T) {
	const asked = 1 << 20
	fetch := &FetchRequest{MaxBytes: asked, Claimed: asked, Room: func(more int64) bool { return more < 10<<20 }}
	for name, c := range map[string]struct {
		size    uint32
		request kmsg.Request
		accept  func(int64) error
		read    bool
	}{
		"without records":         {maxAnswer + 1, kmsg.NewPtrMetadataRequest(), withoutRecords, false},
		"more than a batch":       {asked + minBatch + 1, kmsg.NewPtrFetchRequest(), (&FetchRequest{MaxBytes: asked}).accepts(minBatch), false},
		"more than there is room": {asked + 11<<20, kmsg.NewPtrFetchRequest(), fetch.accepts(minBatch), false},
		"a large batch":           {asked + 9<<20, kmsg.NewPtrFetchRequest(), fetch.accepts(minBatch), true},
	} {
		t.Run(name, func(t *testing.T) {
			head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, c.size+4), 1)
			far := bytes.NewReader(append(head, make([]byte, 100)...))
			_, err := exchange(struct {
				io.Reader
				io.Writer
			}{far, io.Discard}, c.request, c.request.ResponseKind(), c.accept)
			if read := far.Len() == 0; err == nil || read != c.read {
				t.Errorf("%v, %d bytes are left", err, far.Len())
			}
		})
	}
}
