package app

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Secret is text that must not show: however it is printed, logged or marshalled, it reads "***". Reveal is the one way
// to its content.
type Secret string

const redacted = "***"

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText keeps the secret out of JSON and of log lines.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const (
	fileScheme    = "file:"
	maxSecretFile = 64 << 10
)

// readSecret follows a "file:PATH" reference: the file's content without the newline at its end. Other text is returned
// as it is. The error never quotes content.
func readSecret(s string) (string, error) {
	path, isFile := strings.CutPrefix(s, fileScheme)
	if !isFile {
		return s, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the secret: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read the secret: %w", err)
	case len(b) > maxSecretFile:
		return "", fmt.Errorf("the secret in %s is longer than %d bytes", path, maxSecretFile)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("the file %s is empty", path)
	}
	return secret, nil
}

// Size is a number of bytes, written like 64MiB or 500kB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{ // longest first, so that a suffix is cut once
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// ParseSize reads a whole number with an optional unit: B, kB, MB, GB, KiB, MiB, GiB, in any case.
func ParseSize(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if n := len(number) - len(u.name); n > 0 && strings.EqualFold(number[n:], u.name) {
			number, factor = strings.TrimSpace(number[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, fmt.Errorf("%q is not a size; use one such as 64MiB", s)
	}
	return Size(n * factor), nil
}

func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
