package ledger

import (
	"bytes"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/limits/limitstest"
)

const epoch = limitstest.Epoch

var (
	windows      = limitstest.Windows
	newMemLedger = limitstest.NewLedger
	pass         = limitstest.Pass
)

type (
	memLedger = limitstest.Ledger
	memMinute = limitstest.Minute
)

// storeNow is the store's time in a bubble.
func storeNow(int) (int64, bool) { return time.Now().UnixMicro(), true }

// journal is a log that may be read while it is written.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
