package httpcall

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A request that gets no stream until most of its time has passed is not written: its answer might come too late.
func TestAStreamThatIsFreeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(&http.Transport{}, "https", "127.0.0.1:1", 0, new(atomic.Uint64)) // which may open no connection
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		if _, _, err := p.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(begun); waited != 2*time.Second {
			t.Errorf("it waited %s of 3 s", waited)
		}
	})
}
