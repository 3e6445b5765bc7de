// Package recording reads what a daemon's record sink wrote, while it is still written.
package recording

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxRecordLine bounds a line of a record file, in bytes: a time and two ids of at most 256 bytes.
const maxRecordLine = 1 << 10

// File reads the record file of a daemon's sink while it grows: lines of "<unix microseconds> <campaign> <job
// id>". It is not safe for concurrent use.
type File struct {
	path   string
	offset int64
}

// New makes a reader of the file at path, which need not exist yet.
func New(path string) *File { return &File{path: path} }

// Next passes each new line since the last call to yield, in the order of the file. An incomplete last line is left
// for the next call.
func (r *File) Next(yield func(at time.Time, campaign, job string) error) error {
	f, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing has been sent yet
	}
	if err != nil {
		return fmt.Errorf("read what was recorded: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(r.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read what was recorded: %w", err)
	}
	lines := bufio.NewReaderSize(f, 256<<10)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil || len(line) > maxRecordLine:
			return fmt.Errorf("%s is not a record file: a line is longer than %d bytes", r.path, maxRecordLine)
		}
		r.offset += int64(len(line))
		if err := recorded(string(line), yield); err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
}

func recorded(line string, yield func(at time.Time, campaign, job string) error) error {
	stamp, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	campaign, job, ok := strings.Cut(rest, " ")
	micros, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || !ok {
		return fmt.Errorf("%q is not a line of a record file", line)
	}
	return yield(time.UnixMicro(micros), campaign, job)
}
