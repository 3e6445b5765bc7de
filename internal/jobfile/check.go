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
	Bytes int64
	Jobs  int64
	Bad   int64        // lines
	First []*LineError // the first of the bad lines
}

// Check reads a whole file. onRead, if set, is called with the number of bytes that were read since the last call.
func (s *Source) Check(ctx context.Context, r io.Reader, onRead func(int)) (*Findings, error) {
	hash := sha256.New()
	f := &Findings{}
	counted := readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		hash.Write(p[:n])
		f.Bytes += int64(n)
		if onRead != nil {
			onRead(n)
		}
		return n, err
	})
	for _, err := range s.Jobs(counted) {
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
	if _, err := io.Copy(io.Discard, counted); err != nil { // where it could not be read as jobs
		return nil, fmt.Errorf("read: %w", err)
	}
	f.Hash = hex.EncodeToString(hash.Sum(nil))
	return f, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
