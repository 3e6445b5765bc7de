package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Secret is text that must not be shown: printed, logged or marshalled, it reads "***". Only Reveal returns its
// content.
type Secret string

const redacted = "***"

// Reveal returns the secret itself.
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

// masked returns text for a message without what may be a user and a password: what stands before an @, but for the
// scheme of a URL.
func masked(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	scheme := ""
	if i := strings.Index(text[:at], "://"); i >= 0 {
		scheme = text[:i+len("://")]
	}
	return scheme + redacted + text[at:]
}

const (
	fileScheme    = "file:"
	maxSecretFile = 64 << 10
)

// readSecret resolves a "file:PATH" reference to the file's content without the newline at its end. Other text is
// returned unchanged, with no path. The error never quotes content.
func readSecret(s string) (secret, path string, err error) {
	path, isFile := strings.CutPrefix(s, fileScheme)
	if !isFile {
		return s, "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", path, fmt.Errorf("cannot read the secret: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return "", path, fmt.Errorf("cannot read the secret: %w", err)
	case len(b) > maxSecretFile:
		return "", path, fmt.Errorf("the secret in %s is longer than %d bytes", path, maxSecretFile)
	}
	if secret = strings.TrimRight(string(b), "\r\n"); secret == "" {
		return "", path, emptyError(path)
	}
	return secret, path, nil
}

// emptyError is of a file that has nothing in it.
type emptyError string

func (e emptyError) Error() string { return "the file " + string(e) + " is empty" }

// tokensKey is the list of tokens. Unlike other secrets it may be empty: after the removal of its last line no token must stay in use.
const tokensKey = "http.tokens"

// readSecretOf is readSecret of the secret with this key.
func readSecretOf(key, s string) (secret, path string, err error) {
	secret, path, err = readSecret(s)
	if key == tokensKey && errors.As(err, new(emptyError)) {
		err = nil
	}
	return secret, path, err
}
