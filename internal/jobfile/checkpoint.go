package jobfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Checkpoint says how many jobs of a file were published.
type Checkpoint struct {
	Of   string `json:"of"` // what was published, and how: see Source.Key
	Jobs int64  `json:"jobs"`
}

// Key identifies the jobs that the source makes of a file with this hash.
func (s *Source) Key(hash string) string {
	key := sha256.New()
	fmt.Fprintf(key, "%s %q %q %q", hash, s.Campaign, s.Format, s.Map)
	for _, h := range s.Headers {
		fmt.Fprintf(key, " %q=%q", h.Key, h.Value)
	}
	return hex.EncodeToString(key.Sum(nil))
}

// ReadCheckpoint reads the checkpoint of what has this key. Without a file, no job was published.
func ReadCheckpoint(path, key string) (*Checkpoint, error) {
	now := &Checkpoint{Of: key}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return now, nil
	case err != nil:
		return nil, fmt.Errorf("checkpoint %w", err)
	}
	before := Checkpoint{}
	if err := json.Unmarshal(text, &before); err != nil || before.Of != key || before.Jobs < 0 {
		return nil, fmt.Errorf("%s is of another content, campaign, --format, --map or --header; go on with that, name another with --checkpoint, or remove it to begin at the first job", path)
	}
	return &before, nil
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
