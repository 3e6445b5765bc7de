package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxCertFile = 4 << 20          // bytes of a file of certificates; the bundle of an operating system has about 220 KiB
	readEvery   = 10 * time.Second // for changes
)

// files is a configuration with the content of the files that it names.
type files struct {
	config        Config            // with the secrets as they are now
	secrets       map[string]string // those of them that came from files, by key
	ca, cert, key []byte
}

// read reads the files that the configuration names.
func (c *Config) read() (*files, error) {
	f := &files{config: *c, secrets: map[string]string{}}
	f.config.Headers, f.config.Sign.Secrets = maps.Clone(c.Headers), slices.Clone(c.Sign.Secrets)
	for _, key := range slices.Sorted(maps.Keys(c.sources)) {
		value, err := c.sources[key]()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		f.secrets[key] = value
		if name, isHeader := strings.CutPrefix(key, "headers."); isHeader {
			f.config.Headers[name] = value
		} else if at := f.config.secret(key); at != nil {
			*at = value
		}
	}
	for _, from := range []struct {
		key, path string
		content   *[]byte
	}{{"ca_file", c.CAFile, &f.ca}, {"cert_file", c.CertFile, &f.cert}, {"key_file", c.KeyFile, &f.key}} {
		if from.path == "" {
			continue
		}
		var err error
		if *from.content, err = readFile(from.path); err != nil {
			return nil, fmt.Errorf("%s: %w", from.key, err)
		}
	}
	return f, nil
}

// secret returns where a secret other than a header is; nil if there is none of that key.
func (c *Config) secret(key string) *string {
	switch key {
	case "url":
		return &c.URL
	case "body":
		return &c.Body
	case "proxy":
		return &c.Proxy
	case "basic.password":
		return &c.Basic.Password
	case "bearer":
		return &c.Bearer
	case "oauth2.client_secret":
		return &c.OAuth2.ClientSecret
	}
	if i, isItem := strings.CutPrefix(key, "sign.secrets."); isItem {
		if n, err := strconv.Atoi(i); err == nil && n >= 0 && n < len(c.Sign.Secrets) {
			return &c.Sign.Secrets[n]
		}
	}
	return nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxCertFile))
}

func (f *files) equal(o *files) bool {
	return maps.Equal(f.secrets, o.secrets) &&
		bytes.Equal(f.ca, o.ca) && bytes.Equal(f.cert, o.cert) && bytes.Equal(f.key, o.key)
}

// authorities returns who may sign the destination's certificate; nil for the authorities of the system.
func (f *files) authorities() (*x509.CertPool, error) {
	if f.config.CAFile == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(f.ca) {
		return nil, fmt.Errorf("ca_file: %s holds no PEM certificate", f.config.CAFile)
	}
	return pool, nil
}

// certificates returns the certificate that the sink shows to the destination, if there is one.
func (f *files) certificates() ([]tls.Certificate, error) {
	if f.config.CertFile == "" {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("cert_file: %w", err)
	}
	return []tls.Certificate{pair}, nil
}

// Run keeps the access token fresh, if the sink has one, and reads the files that the configuration names every ten seconds,
// until ctx is cancelled. When one has changed, new requests use its content, and new connections. Files that cannot be used
// change nothing.
func (s *Sink) Run(ctx context.Context) error {
	var tokens sync.WaitGroup
	defer tokens.Wait()
	if s.tokens != nil && s.options.Like == nil {
		tokens.Go(func() { s.tokens.Run(ctx) })
	}
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.readAgain()
			if s.options.Endpoints != nil {
				s.endpoints.forget(s.options.Endpoints)
			}
		}
	}
}

func (s *Sink) readAgain() {
	old := s.client.Load()
	changed, err := s.renew(old)
	if err != nil {
		if s.reading.Failed(); s.reading.Failures() == 2 { // one of two files may have been written before the other
			s.options.Logger.Error("the certificates or secrets of a sink cannot be read again; it uses the old ones",
				"destination", old.where, "error", err)
		}
		return
	}
	s.reading.Worked()
	if changed {
		s.options.Logger.Info("the certificates or secrets of a sink have changed; it uses the new ones", "destination", old.where)
	}
}

// renew replaces the client if a file has changed.
func (s *Sink) renew(old *client) (changed bool, err error) {
	f, err := s.options.Config.read()
	if err != nil {
		return false, err
	}
	if f.equal(old.from) {
		return false, nil
	}
	if p := f.config.Problems(); len(p) > 0 {
		return false, errors.New(p[0])
	}
	c, err := newClient(f, s.options.Version)
	if err != nil {
		return false, err
	}
	s.client.Store(c)
	if s.tokens != nil && s.options.Like == nil {
		s.tokens.Renew()
	}
	old.closeIdle() // those in use are closed once they are idle
	return true, nil
}
