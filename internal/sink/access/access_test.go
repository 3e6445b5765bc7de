package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/testservices/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFollow: what is read again is used once it can be; a fault is told once, and changes nothing.
func TestFollow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	put := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	var mu sync.Mutex // the race detector does not see that a step is over before the next reading
	secret, failing := "s1", error(nil)
	var secrets Secrets
	secrets.SecretFrom("password", func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return secret, failing
	})
	k, err := Keep(secrets, func(r *Reader) string {
		text := string(r.File("key_file", file)) + "/" + r.Secret("password", "unused") + "/" + r.Secret("user", "me")
		if strings.HasPrefix(text, "bad") {
			r.Fail(errors.New("key_file: bad"))
		}
		return text
	})
	if err != nil || k.Now() != "one/s1/me" {
		t.Fatal(k, err)
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var replaced []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Follow(ctx, Following[string]{
				Logger: slog.New(slog.NewTextHandler(&out, nil)), Destination: "x", Changed: func(old string) { replaced = append(replaced, old) },
			})
		}()
		time.Sleep(every / 2) // between two readings
		for i, step := range []struct {
			change func()
			want   string
		}{
			{func() {}, "one/s1/me"},
			{func() { put("two") }, "two/s1/me"},
			{func() { secret = "s2" }, "two/s2/me"},
			{func() { put("bad") }, "two/s2/me"},
			{func() {}, "two/s2/me"},
			{func() {}, "two/s2/me"},
			{func() { put("two"); failing = errors.New("gone") }, "two/s2/me"},
			{func() { failing = nil; put("three") }, "three/s2/me"},
		} {
			mu.Lock()
			step.change()
			mu.Unlock()
			time.Sleep(every)
			synctest.Wait()
			if got := k.Now(); got != step.want {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
		}
		cancel()
		<-done
		if fmt.Sprint(replaced) != "[one/s1/me two/s1/me two/s2/me]" {
			t.Errorf("replaced %v", replaced)
		}
		if s := out.String(); strings.Count(s, "level=ERROR") != 1 || strings.Count(s, "level=INFO") != 3 || strings.Contains(s, "s2") {
			t.Error(s)
		}
	})
}

// TestReader: the first error names its key, and files are bounded.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, err := certs.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue("pacer", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	good := Certificates{write("ca", ca.PEM), write("cert", cert), write("key", key)}
	text, huge := write("text", []byte("hello")), write("huge", make([]byte, maxFile+1))
	for want, c := range map[string]Certificates{
		"":                     good,
		"ca_file: " + text:     {CAFile: text},
		"ca_file: " + huge:     {CAFile: huge},
		"ca_file: open ":       {CAFile: dir + "/nowhere"},
		"cert_file: tls: ":     {CertFile: text, KeyFile: good.KeyFile},
		"key_file: open ":      {CertFile: good.CertFile, KeyFile: dir + "/nowhere"},
		"cert_file: tls: fail": {CertFile: good.CertFile, KeyFile: text},
	} {
		k, err := Keep(Secrets{}, func(r *Reader) int { return len(r.TLS(c).Certificates) })
		if want == "" && (err != nil || k.Now() != 1) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if p := (Certificates{KeyFile: "x"}).Problems(); len(p) != 1 || good.Problems() != nil {
		t.Error(p)
	}
}
