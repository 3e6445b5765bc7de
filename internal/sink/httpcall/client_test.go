package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a client for the destination at the address, with a long timeout.
func open(t *testing.T, address string) *Client {
	t.Helper()
	c, err := New(Options{URL: address, Version: "1", MaxInFlight: 8, Timeout: time.Minute, Resent: new(atomic.Uint64)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestFewAnswersAreLong: what all calls together hold of long answers is bounded; short ones do not wait.
func TestFewAnswersAreLong(t *testing.T) {
	t.Parallel()
	far := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) {
		size, _ := strconv.Atoi(c.Path[1:])
		c.Begin(200)
		for ; size > 0 && c.Body(make([]byte, min(size, 64<<10))) == nil; size -= 64 << 10 {
			continue
		}
		c.End()
	})
	api := open(t, strings.TrimSuffix(far.URL, "/deliver"))
	post := func(ctx context.Context, size int) {
		if a, none := api.Post(ctx, Request{Path: fmt.Sprint("/", size), Most: 4 << 20}); none != nil || len(a.Body) != size || !a.Whole {
			t.Errorf("%d of %d bytes, whole %t, %+v", len(a.Body), size, a.Whole, none)
		}
	}
	var ends []context.CancelFunc
	for range maxLong {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		post(ctx, 3<<20)
	}
	for _, size := range []int{0, 100, longAnswer - 1} {
		post(t.Context(), size)
	}
	limited, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if a, none := api.Post(limited, Request{Path: "/3145728", Most: 4 << 20}); none == nil && (a.Whole || len(a.Body) > longAnswer) {
		t.Errorf("one more has %d bytes, whole %t", len(a.Body), a.Whole)
	}
	last := make(chan struct{})
	go func() {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		post(ctx, 4<<20)
		close(last)
	}()
	ends[0]()
	<-last
	for _, end := range ends {
		end()
	}
}

// TestATokenThatDoesNotCome: the error says for how long it was waited, which is not the timeout of a call.
func TestATokenThatDoesNotCome(t *testing.T) {
	t.Parallel()
	far := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) { c.Hang() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := open(t, far.URL).FetchToken(ctx, TokenRequest{URL: far.URL, Key: "token_url"}); err == nil || strings.Contains(err.Error(), "1m0s") {
		t.Errorf("%v", err)
	}
}

// TestATokenEndpointThatAsksToWait: for how long reaches the source of tokens.
func TestATokenEndpointThatAsksToWait(t *testing.T) {
	for header, want := range map[string]time.Duration{"60": time.Minute, "": 0} {
		for _, status := range []int{429, 503} {
			_, e := readToken(Answer{Status: status, Header: http.Header{"Retry-After": {header}}}, "x", "")
			if e.Class != delivery.Unreachable || e.RetryAfter != want {
				t.Errorf("%d, Retry-After: %s: %+v", status, header, e)
			}
		}
	}
}

func TestLifetimesDiffer(t *testing.T) {
	shortest, longest := time.Hour, time.Duration(0)
	for range 1000 {
		d := lifetime(5 * time.Minute)
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if shortest < 4*time.Minute || longest > 5*time.Minute || longest-shortest < 30*time.Second {
		t.Errorf("connections live from %s to %s", shortest, longest)
	}
}

// TestTheAddressOfAServiceMayHaveAPath: it comes before that of a request, as it is spelled; and a request needs no header.
func TestTheAddressOfAServiceMayHaveAPath(t *testing.T) {
	t.Parallel()
	far := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200, "X-Path", c.Path) })
	root := strings.TrimSuffix(far.URL, "/deliver")
	for _, tt := range []struct{ address, path, want string }{
		{root, "", "/"}, {root, "/bot1:a/send", "/bot1:a/send"}, {root + "/", "/send", "/send"}, {root + "/gateway/", "", "/gateway/"},
		{root + "/gateway", "/send", "/gateway/send"}, {root + "/a%2Fb/?key=1", "/messages:send", "/a%2Fb/messages:send?key=1"},
	} {
		a, none := open(t, tt.address).Post(t.Context(), Request{Path: tt.path})
		if none != nil || a.Header.Get("X-Path") != tt.want {
			t.Errorf("%s and %s: %q, %+v", tt.address, tt.path, a.Header.Get("X-Path"), none)
		}
	}
}

// A request that gets no stream until most of its time has passed is not written: its answer might come too late.
func TestAStreamThatIsFreeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(&http.Transport{}, "https", "127.0.0.1:1", 0, new(atomic.Uint64)) // which may open no connection
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		if _, _, err := p.acquire(ctx); !errors.Is(err, errBusy) {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(begun); waited != 2*time.Second {
			t.Errorf("it waited %s of 3 s", waited)
		}
	})
}

// TestAFarewellWaitsForNothing: a destination has answered, and is gone when its connection is closed here.
func TestAFarewellWaitsForNothing(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	certificates := srv.TLS.Certificates
	srv.Close()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		whole := tls.Client(newAging(here, 0), &tls.Config{InsecureSkipVerify: true})
		far := tls.Server(there, &tls.Config{Certificates: certificates, SessionTicketsDisabled: true})
		go func() { _ = far.Handshake() }()
		if err := whole.Handshake(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		aging(whole).use()
		_ = there.Close()
		begun := time.Now()
		_ = whole.Close()
		if took := time.Since(begun); took != 0 {
			t.Errorf("closing it took %s", took)
		}
	})
}
