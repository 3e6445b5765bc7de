package jobfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Checkpoint says how far a file was published, and what was published.
type Checkpoint struct {
	SHA256   string `json:"sha256"` // of the whole file
	Campaign string `json:"campaign"`
	Format   Format `json:"format"`
	Map      string `json:"map"`
	Headers  string `json:"headers,omitempty"` // a hash of those of every job
	Position
}

// maxCheckpoint bounds a checkpoint that is read, in bytes.
const maxCheckpoint = 64 << 10

// ReadCheckpoint reads a checkpoint; nil if there is none.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	text := make([]byte, maxCheckpoint)
	n, _ := file.Read(text) // what cannot be read is no checkpoint either
	c := &Checkpoint{}
	if err := json.Unmarshal(text[:n], c); err != nil || c.SHA256 == "" || c.Offset < 0 || c.Line < 0 || c.Jobs < 0 {
		return nil, fmt.Errorf("%s is not a checkpoint of pacer publish; remove it to begin at the first line, or name another with --checkpoint", path)
	}
	return c, nil
}

// GoOn returns where to go on with what c says; the beginning if before, which was found at path, is nil.
func (c *Checkpoint) GoOn(before *Checkpoint, path string) (Position, error) {
	if before == nil {
		return Position{}, nil
	}
	what := ""
	switch {
	case before.SHA256 != c.SHA256:
		what = "a file with another content"
	case before.Campaign != c.Campaign:
		what = "campaign " + before.Campaign
	case before.Format != c.Format:
		what = "--format " + string(before.Format)
	case before.Map != c.Map:
		what = fmt.Sprintf("--map %q", before.Map)
	case before.Headers != c.Headers:
		what = "other headers of --header"
	default:
		return before.Position, nil
	}
	return Position{}, fmt.Errorf("%s belongs to %s, of which %d jobs were published; go on with that, or name another with --checkpoint, or remove it to begin at the first line",
		path, what, before.Jobs)
}

// Write writes the checkpoint in place of the one before. A process that is killed leaves one of the two.
func (c *Checkpoint) Write(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	next := path + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("checkpoint %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("checkpoint %w", err)
	}
	return nil
}

// Tracker notes the positions of jobs on their way to the broker. Its zero value is ready; safe for concurrent use.
type Tracker struct {
	mu   sync.Mutex
	ends []Position // of the jobs that are on their way
	done int64      // jobs that have arrived
}

// Sent notes the position behind the next job.
func (t *Tracker) Sent(end Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = append(t.ends, end)
}

// Arrived returns the position behind the first n jobs, which have arrived. ok: some of them are new.
func (t *Tracker) Arrived(n int64) (at Position, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := n - t.done
	if fresh <= 0 || fresh > int64(len(t.ends)) {
		return Position{}, false
	}
	at = t.ends[fresh-1]
	t.ends, t.done = t.ends[fresh:], n
	return at, true
}
