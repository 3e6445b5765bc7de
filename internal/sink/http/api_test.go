package http

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestAnAnswerThatDoesNotEnd: what was read of it counts when the time of the call is over, whoever has set that, but not when
// pacer gives the call up.
func TestAnAnswerThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 100)
	far := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) {
		c.Begin(200)
		_ = c.Body([]byte("taken"))
		begun <- struct{}{}
		c.Hang()
	})
	api, err := NewAPI(APIOptions{URL: far.URL, Version: "1", MaxInFlight: 4, Timeout: time.Minute, Resent: new(atomic.Uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	post := func(ctx context.Context) (Answer, *delivery.Result) {
		return api.Post(ctx, Request{Path: "/deliver", Header: http.Header{}})
	}
	for limit := 50 * time.Millisecond; ; limit *= 2 { // until it is enough for an answer to begin
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		answer, res := post(ctx)
		cancel()
		if res == nil && string(answer.Body) == "taken" && !answer.Whole {
			break
		}
		if limit > 5*time.Second {
			t.Fatalf("%q, %+v", answer.Body, res)
		}
	}
	for len(begun) > 0 {
		<-begun
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if answer, res := post(ctx); res == nil || res.Class != delivery.Interrupted {
		t.Errorf("given up: %q, %+v", answer.Body, res)
	}
}
