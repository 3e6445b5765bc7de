package jobfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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

// Check reads a whole file.
func (s *Source) Check(ctx context.Context, r io.Reader) (*Findings, error) {
	hash, f := sha256.New(), &Findings{}
	hashed := io.TeeReader(r, hash)
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
	f.Hash = hex.EncodeToString(hash.Sum(nil))
	return f, nil
}
