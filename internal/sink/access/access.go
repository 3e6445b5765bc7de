// Package access reads the secrets and files that the configuration of a sink names.
package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"

	"github.com/pacer/pacer/internal/sink/render"
)

const maxFile = 4 << 20 // bytes; the bundle of certificates of an operating system has about 220 KiB

// Secrets are the secrets of a configuration that come from files. The zero value has none. Configurations embed it, so that
// none of them is printed with what is secret in it.
type Secrets struct {
	Sources map[string]func() (string, error) // by key: reads the content as it is now. An error begins with the key of SecretFrom
}

// SecretFrom says how to read a secret that comes from a file.
func (s *Secrets) SecretFrom(key string, read func() (string, error)) {
	if s.Sources == nil {
		s.Sources = map[string]func() (string, error){}
	}
	s.Sources[key] = func() (string, error) {
		value, err := read()
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return value, err
	}
}

// FromFile reports whether a setting comes from a file.
func (s *Secrets) FromFile(key string) bool { return s.Sources[key] != nil }

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
	*read
}

// read is what was read so far.
type read struct {
	digest hash.Hash // of all of it
	err    error
}

// Of returns the Reader for a part of the configuration, which has secrets of its own.
func (r *Reader) Of(part Secrets) *Reader { return &Reader{part, r.read} }

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
			r.Fail(err)
		}
	}
	r.note([]byte(value))
	return value
}

// TLS returns the client's side of encrypted connections. The prefix stands before keys.
func (r *Reader) TLS(prefix string, t Certificates) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(r.File(prefix+"ca_file", t.CAFile)) {
			r.Fail(fmt.Errorf("%sca_file: %s holds no PEM certificate", prefix, t.CAFile))
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

// Texts returns the templates of settings that are texts or templates.
func (r *Reader) Texts(texts ...render.Text) render.Set {
	set, errs := render.ParseAll(texts...)
	for _, err := range errs {
		r.Fail(err)
	}
	return set
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

// Read has build make a value of what it reads. The digest is that of all it has read. An error begins with the key.
func Read[T any](secrets Secrets, build func(*Reader) T) (value T, digest string, err error) {
	r := &Reader{secrets, &read{digest: sha256.New()}}
	value = build(r)
	return value, string(r.digest.Sum(nil)), r.err
}
