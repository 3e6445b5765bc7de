package progress

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/harness"
)

// TestADatabaseOfYesterdayIsNoticed: also if nobody who saw the newer one runs any more; it is said once.
func TestADatabaseOfYesterdayIsNoticed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: harness.FreshRedis(t).Addr})
	defer func() { _ = client.Close() }()
	exchange, store := NewRedisExchange(client, "p."), newShelf()
	var log bytes.Buffer
	daemon := func() *revisions {
		return &revisions{exchange: exchange, store: store, log: slog.New(slog.NewTextHandler(&log, nil))}
	}
	for _, step := range []struct{ database, mine, seen int64 }{
		{90, 90, 90}, {120, 120, 120}, {121, 119, 120}, // one that reads late
		{60, 60, 120}, {125, 60, 120}, {125, 125, 125},
	} {
		before := store.newest
		store.newest = step.database
		daemon().compare(t.Context(), step.mine)
		if store.seen != step.seen {
			t.Errorf("the database at %d, before at %d, is told of %d by a daemon at %d, want %d", step.database, before, store.seen, step.mine, step.seen)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d Error lines:\n%s", n, log.String())
	}
	store.fail = errors.New("no such function")
	one := daemon()
	one.compare(t.Context(), 130)
	one.compare(t.Context(), 130)
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d lines of a database that does not answer:\n%s", n, log.String())
	}
}
