// Package access reads the secrets and files that the configuration of a sink names, and reads them again while the
// daemon runs.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	maxFile = 4 << 20          // bytes; the bundle of certificates of an operating system has about 220 KiB
	every   = 10 * time.Second // files are read again
)

// Secrets are the secrets of a configuration that come from files. The zero value has none. Configurations embed it, so that
// none of them is printed with what is secret in it.
type Secrets struct {
	Sources map[string]func() (string, error) // by key: reads the content as it is now
}

// SecretFrom says how to read a secret that comes from a file.
func (s *Secrets) SecretFrom(key string, read func() (string, error)) {
	if s.Sources == nil {
		s.Sources = map[string]func() (string, error){}
	}
	s.Sources[key] = read
}

// String, GoString and LogValue stand for all of the configuration.
func (Secrets) String() string { return "(configuration of a sink)" }

// GoString keeps secrets out of %#v.
func (s Secrets) GoString() string { return s.String() }

// LogValue implements slog.LogValuer.
func (s Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Certificates are the files of encrypted connections.
type Certificates struct {
	// CAFile holds the PEM certificates that verify the destination's; "" for those of the system.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the PEM certificate that the sink shows to the destination, and its key; "" for none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Problems returns the errors in the settings, one line each, beginning with the key.
func (t Certificates) Problems() []string {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return []string{"cert_file: goes together with key_file; set both or neither"}
	}
	return nil
}

// Reader reads the files and secrets of one configuration. The first error stays: what is read after it is empty.
type Reader struct {
	secrets Secrets
	digest  hash.Hash // of all that was read
	err     error
}

// File returns the content of the file at path, the value of the key.
func (r *Reader) File(key, path string) []byte {
	if r.err != nil {
		return nil
	}
	content, err := readFile(path)
	if err != nil {
		r.Fail(fmt.Errorf("%s: %w", key, err))
		return nil
	}
	r.note(content)
	return content
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return b, err
}

// Secret returns the secret of the key as it is now: value, unless it comes from a file.
func (r *Reader) Secret(key, value string) string {
	if again, ok := r.secrets.Sources[key]; ok && r.err == nil {
		var err error
		if value, err = again(); err != nil {
			r.Fail(fmt.Errorf("%s: %w", key, err))
		}
	}
	r.note([]byte(value))
	return value
}

// TLS returns the client's side of encrypted connections.
func (r *Reader) TLS(t Certificates) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(r.File("ca_file", t.CAFile)) {
			r.Fail(fmt.Errorf("ca_file: %s holds no PEM certificate", t.CAFile))
		}
	}
	if t.CertFile != "" {
		pair, err := tls.X509KeyPair(r.File("cert_file", t.CertFile), r.File("key_file", t.KeyFile))
		if err != nil {
			r.Fail(fmt.Errorf("cert_file: %w", err))
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// Fail reports that what was read cannot be used. The error begins with the key.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Reader) note(content []byte) {
	fmt.Fprintf(r.digest, "%d:", len(content)) // hashing never fails, as documented
	_, _ = r.digest.Write(content)
}

// Kept is what a sink makes of its files and secrets, and makes anew when one has changed. Safe for concurrent use.
type Kept[T any] struct {
	secrets Secrets
	build   func(*Reader) T
	current atomic.Pointer[reading[T]]
	outage  retry.Outage
}

type reading[T any] struct {
	value  T
	digest string
}

// Keep reads for the first time. build makes the value; errors are told to the Reader. An error begins with the key.
func Keep[T any](secrets Secrets, build func(*Reader) T) (*Kept[T], error) {
	k := &Kept[T]{secrets: secrets, build: build}
	first, err := k.read()
	if err != nil {
		return nil, err
	}
	k.current.Store(first)
	return k, nil
}

func (k *Kept[T]) read() (*reading[T], error) {
	r := &Reader{secrets: k.secrets, digest: sha256.New()}
	value := k.build(r)
	return &reading[T]{value, string(r.digest.Sum(nil))}, r.err
}

// Now returns the value as it was made last.
func (k *Kept[T]) Now() T { return k.current.Load().value }

// Following is what Follow tells, and to whom.
type Following[T any] struct {
	Logger      *slog.Logger
	Destination string // in log lines
	// Changed is called with the value that was replaced.
	Changed func(old T)
}

// Follow reads every ten seconds until ctx is cancelled. Content that cannot be used changes nothing.
func (k *Kept[T]) Follow(ctx context.Context, f Following[T]) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.Again(f)
		}
	}
}

// Again reads once more.
func (k *Kept[T]) Again(f Following[T]) {
	old := k.current.Load()
	fresh, err := k.read()
	switch {
	case err != nil:
		if k.outage.Failed(); k.outage.Failures() == 2 { // one of two files may have been written before the other
			f.Logger.Error("the certificates or secrets of a sink cannot be read again; it uses the old ones",
				"destination", f.Destination, "error", err)
		}
		return
	case fresh.digest != old.digest:
		k.current.Store(fresh)
		f.Logger.Info("the certificates or secrets of a sink have changed; it uses the new ones", "destination", f.Destination)
		if f.Changed != nil {
			f.Changed(old.value)
		}
	}
	k.outage.Worked()
}
