package base

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

	"github.com/pacer/pacer/internal/sink/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts are a text, and where it is noted that they were replaced.
type parts struct {
	text     string
	replaced *[]string
}

func (parts) Where() string { return "x" }

func (p parts) Close() { *p.replaced = append(*p.replaced, p.text) }

// TestReread: what is read again is used once it can be; a fault is told once, and changes nothing.
func TestReread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	put := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	var mu sync.Mutex // the race detector does not see that a step is over before the next reading
	secret, failing := "s1", error(nil)
	var secrets access.Secrets
	secrets.SecretFrom("password", func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return secret, failing
	})
	var replaced []string
	build := func(r *access.Reader) parts {
		text := string(r.File("key_file", file)) + "/" + r.Secret("password", "unused") + "/" + r.Secret("user", "me")
		if strings.HasPrefix(text, "bad") {
			r.Fail(errors.New("key_file: bad"))
		}
		return parts{text, &replaced}
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var s Service[parts]
		host := Host{Logger: slog.New(slog.NewTextHandler(&out, nil))}
		if err := s.Open(host, Dialect[parts]{Secrets: secrets, Build: build}); err != nil || s.Now().text != "one/s1/me" {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(RereadEvery / 2) // between two readings
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
			{func() { failing = errors.New("gone") }, "three/s2/me"},
			{func() {}, "three/s2/me"},
			{func() { failing = nil }, "three/s2/me"},
		} {
			mu.Lock()
			step.change()
			mu.Unlock()
			time.Sleep(RereadEvery)
			synctest.Wait()
			if got := s.Now().text; got != step.want {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
		}
		cancel()
		<-done
		if fmt.Sprint(replaced) != "[one/s1/me two/s1/me two/s2/me]" {
			t.Errorf("replaced %v", replaced)
		}
		logged := out.String()
		if strings.Count(logged, "level=ERROR") != 2 || strings.Count(logged, "level=INFO") != 4 || strings.Contains(logged, "s2") {
			t.Error(logged)
		}
	})
}
