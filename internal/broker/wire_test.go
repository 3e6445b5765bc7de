package broker

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAnswersAreBounded: an answer that is said to be larger than any can be is not read.
func TestAnswersAreBounded(t *testing.T) {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, maxAnswer+5), 1)
	far := bytes.NewReader(append(head, make([]byte, 100)...))
	request := kmsg.NewPtrMetadataRequest()
	_, err := exchange(struct {
		io.Reader
		io.Writer
	}{far, io.Discard}, request, request.ResponseKind())
	if err == nil || far.Len() != 100 {
		t.Errorf("%v, %d bytes are left", err, far.Len())
	}
}
