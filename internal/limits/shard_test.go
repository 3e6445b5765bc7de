package limits

import (
	"context"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// TestNobodyLooksForAShardAfterTheEnd: a shard does not answer and is looked for; when Run has returned, it is not.
func TestNobodyLooksForAShardAfterTheEnd(t *testing.T) {
	server, client := miniClient(t)
	e := newEngine(t, Options{Shards: shards.New(client), KeyPrefix: "p.", Timeout: 50 * time.Millisecond})
	server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for range 2 { // the first finds out, the second has it looked for
		if _, err := e.Take(context.Background(), []delivery.Ask{ask(campaign(10), 1)}); err == nil {
			t.Fatal("a take without a server")
		}
	}
	s := e.shards[0]
	looked := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.probing
	}
	if !looked() {
		t.Fatal("nobody looks for the shard")
	}
	cancel()
	must(t, <-ended)
	if looked() {
		t.Error("somebody still looks for the shard")
	}
}
