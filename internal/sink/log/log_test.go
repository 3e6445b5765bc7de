package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recording(t testing.TB) (s *Sink, path string, logged *bytes.Buffer) {
	t.Helper()
	path, logged = filepath.Join(t.TempDir(), "record"), &bytes.Buffer{}
	s, err := newSink(path, false, slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s, path, logged
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLineFormatAndFlushEvery100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path, _ := recording(t) // in the bubble: fake time stops for channels made outside it
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		at := time.Now().UnixMicro()
		if r := s.Deliver(t.Context(), &delivery.Job{ID: "pacer.jobs/3/7", Campaign: "spring"}, nil); r.Class != delivery.Delivered {
			t.Errorf("%+v", r)
		}
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		if got := read(t, path); got != "" {
			t.Errorf("written before the tick: %q", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		want := fmt.Sprintf("%d spring pacer.jobs/3/7\n", at)
		if got := read(t, path); got != want {
			t.Errorf("file %q, want %q", got, want)
		}
		s.Deliver(t.Context(), &delivery.Job{ID: "2", Campaign: "spring"}, nil)
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
		if got := read(t, path); strings.Count(got, "\n") != 2 {
			t.Errorf("lines were left behind: %q", got)
		}
	})
}

func TestAppendsAndLosesNothing(t *testing.T) {
	s, path, _ := recording(t)
	if err := os.WriteFile(path, []byte("1 old line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	const goroutines, each = 16, 3000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				s.Deliver(ctx, &delivery.Job{ID: strconv.Itoa(i), Campaign: strconv.Itoa(g)}, nil)
				if g == 0 && i == each/2 {
					cancel() // deliveries go on after Run; Close writes them
				}
			}
		})
	}
	wg.Wait()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(read(t, path), "\n"), "\n")
	if lines[0] != "1 old line" || len(lines) != 1+goroutines*each {
		t.Fatalf("%d lines, the first %q", len(lines), lines[0])
	}
	seen := map[string]bool{}
	for _, l := range lines[1:] {
		f := strings.Split(l, " ")
		if len(f) != 3 || len(f[0]) != 16 || seen[f[1]+" "+f[2]] {
			t.Fatalf("line %q", l)
		}
		seen[f[1]+" "+f[2]] = true
	}
}

func TestFileThatCannotBeOpened(t *testing.T) {
	if _, err := New(&Config{Settings{Record: filepath.Join(t.TempDir(), "no", "such", "dir")}}, base.Host{}); err == nil || !strings.HasPrefix(err.Error(), "record: open ") {
		t.Error(err)
	}
}

// TestFailingWrites: the log says once, not ten times a second, that the file cannot be written, and lines come again when it can be.
func TestFailingWrites(t *testing.T) {
	s, path, logged := recording(t)
	good := s.file
	readOnly, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	s.file = readOnly
	for range 3 {
		s.buffer.Reset(s.file)
		s.Deliver(t.Context(), &delivery.Job{ID: "1", Campaign: "c"}, nil)
		if err := s.write(); err == nil {
			t.Fatal("a write to a read-only file succeeded")
		}
	}
	s.file = good
	s.buffer.Reset(s.file)
	s.Deliver(t.Context(), &delivery.Job{ID: "2", Campaign: "c"}, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); !strings.HasSuffix(got, " c 2\n") || strings.Count(logged.String(), "level=ERROR") != 1 || !strings.Contains(logged.String(), "again") {
		t.Errorf("file %q, log %s", got, logged)
	}
}

func TestOneLineWithoutThePayload(t *testing.T) {
	var out bytes.Buffer
	s, _ := newSink("", true, slog.New(slog.NewTextHandler(&out, nil)))
	r := s.Deliver(t.Context(), &delivery.Job{ID: "u-42", Campaign: "spring", Weight: 3, History: delivery.History{Attempt: 2}, Payload: []byte("hunter22")}, nil)
	if r.Class != delivery.Delivered {
		t.Errorf("result %+v", r)
	}
	line := out.String()
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "hunter22") {
		t.Errorf("line %q", line)
	}
	for _, want := range []string{"campaign=spring", "job=u-42", "bytes=8", "weight=3", "attempt=3"} {
		if !strings.Contains(line, want) {
			t.Errorf("line %q lacks %s", line, want)
		}
	}
}
