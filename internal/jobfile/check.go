package jobfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// maxBad is how many bad lines Check returns; the others are counted.
const maxBad = 20

// Findings are what Check found.
type Findings struct {
	Hash  string // of the whole file, hexadecimal
	Jobs  int64
	Bad   int64        // lines
	First []*LineError // the first of the bad lines
}

// Summed reads a file, and sums up what was read.
type Summed struct {
	io.Reader
	hash hash.Hash
}

// Sum makes a Summed of a reader.
func Sum(r io.Reader) *Summed {
	h := sha256.New()
	return &Summed{io.TeeReader(r, h), h}
}

// Hash returns the hash of what was read, hexadecimal.
func (s *Summed) Hash() string { return hex.EncodeToString(s.hash.Sum(nil)) }

// Check reads a whole file.
func (s *Source) Check(ctx context.Context, r io.Reader) (*Findings, error) {
	hashed, f := Sum(r), &Findings{}
	for _, err := range s.Jobs(hashed) {
		var bad *LineError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			f.Jobs++
		case errors.As(err, &bad):
			if f.Bad++; len(f.First) < maxBad {
				f.First = append(f.First, bad)
			}
		default:
			return nil, err
		}
	}
	if _, err := io.Copy(io.Discard, hashed); err != nil { // where it could not be read as jobs
		return nil, fmt.Errorf("read: %w", err)
	}
	f.Hash = hashed.Hash()
	return f, nil
}
