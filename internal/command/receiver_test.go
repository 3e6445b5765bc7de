package command

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobfile"
)

func TestTheReceiverAnswersAndCounts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, strings.Fields("receiver --listen 127.0.0.1:0 --failing 100"), World{Stdout: in, Stderr: in})
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it printed nothing")
	}
	url, ok := strings.CutPrefix(lines.Text(), "listening on ")
	if !ok {
		t.Fatal(lines.Text())
	}
	for _, q := range []struct {
		method string
		want   int
	}{{http.MethodGet, 200}, {http.MethodPost, 503}, {http.MethodPut, 503}} {
		request := try(http.NewRequestWithContext(ctx, q.method, url+"/readyz", strings.NewReader("{}")))(t)
		answer := try(http.DefaultClient.Do(request))(t)
		if _ = answer.Body.Close(); answer.StatusCode != q.want {
			t.Errorf("%s: %d, want %d", q.method, answer.StatusCode, q.want)
		}
	}
	cancel()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if c := <-code; c != 0 || last != "2 requests in all, 2 of them answered with 503" {
		t.Errorf("code %d, last line %q", c, last)
	}
}

// Test jobs at a rate are evenly spaced, and a pause that is cut short ends them.
func TestTestJobsAreSpacedAtTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publishing{
			flags: &publishFlags{Campaign: "spring", Count: 101}, rate: delivery.PerSecond(50),
			source: &jobfile.Source{Headers: []delivery.Header{{Key: "tenant", Value: []byte("blue")}}},
		}
		began, n := time.Now(), 0
		for e, err := range p.numbered(t.Context(), "run") {
			if err != nil || e.Header("tenant") != "blue" {
				t.Fatal(e, err)
			}
			n++
		}
		if took := time.Since(began); n != 101 || took != 2*time.Second {
			t.Errorf("%d jobs in %s, want 101 in 2s", n, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var last error
		for _, err := range p.numbered(ctx, "run") {
			last = err
		}
		if last == nil {
			t.Error("it went on after its end")
		}
	})
}
