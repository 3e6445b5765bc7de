package limits

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestAServerThatMayEvictIsNamed: a limit of the memory and a policy that evicts, and only both.
func TestAServerThatMayEvictIsNamed(t *testing.T) {
	t.Parallel()
	server := testservices.FreshRedis(t)
	client := clientOf(t, server.Addr)
	set := connect(t, shards.Options{Addrs: []string{server.Addr}})
	for _, tc := range []struct {
		policy, most string
		told         bool
	}{{"noeviction", "1gb", false}, {"volatile-lru", "0", false}, {"volatile-lru", "1gb", true}} {
		must(t, client.ConfigSet(t.Context(), "maxmemory-policy", tc.policy).Err())
		must(t, client.ConfigSet(t.Context(), "maxmemory", tc.most).Err())
		var log bytes.Buffer
		e := newEngine(t, Options{Shards: set, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		servers := e.checkMemory(t.Context(), "")
		e.checkMemory(t.Context(), servers)
		said := strings.Count(log.String(), "CONFIG SET maxmemory-policy noeviction")
		if want := server.Addr + ": volatile-lru"; tc.told && (said != 1 || servers != want) || !tc.told && (said > 0 || servers != "") {
			t.Errorf("%+v: %q, %s", tc, servers, &log)
		}
	}
}
