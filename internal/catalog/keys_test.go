package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestKeysOfRequests: of those who claim a key at a time one gets it, and the answer is remembered for all, for a day.
func TestKeysOfRequests(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	a, conn := adminOf(t, dsn), connected(t, dsn)
	of := func(actor, key, request string) KeyedRequest {
		return KeyedRequest{Actor: actor, Key: key, Fingerprint: fmt.Appendf(nil, "%-32s", request)}
	}
	request := of("alice", "k", "one")
	var got, refused int
	var claim int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			number, before, err := a.ClaimKey(ctx, request)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && before == nil:
				got++
				claim = number
			case errors.Is(err, ErrKeyInUse):
				refused++
			default:
				t.Errorf("%+v, %v", before, err)
			}
		})
	}
	if all.Wait(); got != 1 || refused != 3 {
		t.Fatalf("%d got the key, %d were refused", got, refused)
	}
	answer := KeptAnswer{Status: 201, Header: json.RawMessage(`{"ETag": ["\"7\""]}`), Body: `{"id":"спринг"}`}
	if err := a.KeepAnswer(ctx, request, claim+1000, KeptAnswer{Status: 500, Header: json.RawMessage(`{}`)}); err != nil { // of nobody
		t.Fatal(err)
	}
	if err := a.KeepAnswer(ctx, request, claim, answer); err != nil {
		t.Fatal(err)
	}
	if _, before, err := adminOf(t, dsn).ClaimKey(ctx, request); err != nil || before == nil || before.Status != 201 || before.Body != answer.Body || string(before.Header) != string(answer.Header) {
		t.Errorf("another process is told %+v, %v", before, err)
	}
	if _, _, err := a.ClaimKey(ctx, of("alice", "k", "two")); !errors.Is(err, ErrKeyReused) {
		t.Errorf("another request with the key: %v", err)
	}
	claim, before, err := a.ClaimKey(ctx, of("bob", "k", "two"))
	if err != nil || before != nil {
		t.Errorf("of somebody else: %+v, %v", before, err)
	}
	if err := a.DropKey(ctx, of("bob", "k", "two"), claim); err != nil {
		t.Fatal(err)
	}
	if _, before, err := a.ClaimKey(ctx, of("bob", "k", "three")); err != nil || before != nil {
		t.Errorf("after it was given back: %+v, %v", before, err)
	}
	run(t, conn, `UPDATE pacer.idempotency_keys SET begun = now() - interval '11 minutes'`)
	if _, _, err := a.ClaimKey(ctx, of("bob", "k", "three")); !errors.Is(err, ErrKeyUnfinished) || strings.Contains(err.Error(), "\n") {
		t.Errorf("whose process has ended: %v", err)
	}
	run(t, conn, `UPDATE pacer.idempotency_keys SET begun = now() - interval '25 hours'`)
	run(t, conn, `INSERT INTO pacer.idempotency_keys (actor, key, fingerprint, begun) SELECT 'old', g::text, sha256(''), now() - interval '26 hours' FROM generate_series(1, 250) g`)
	if _, before, err := a.ClaimKey(ctx, of("alice", "k", "two")); err != nil || before != nil {
		t.Errorf("a day later: %+v, %v", before, err)
	}
	var rows int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM pacer.idempotency_keys`).Scan(&rows); err != nil || rows != 152 { // 250 less 100, bob's, and the new one
		t.Errorf("%d rows are left, %v", rows, err)
	}
	for _, key := range []string{"", strings.Repeat("k", 129)} {
		if _, _, err := a.ClaimKey(ctx, of("alice", key, "x")); err == nil {
			t.Errorf("a key of %d bytes", len(key))
		}
	}
}

// TestKeysAreBounded: no more are remembered than there is room for, and nothing is done with one that could not be.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	conn := connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.idempotency_keys (actor, key, fingerprint) SELECT 'many', g::text, sha256('') FROM generate_series(1, 3) g`)
	_, err := conn.Exec(ctx, claimKey, "alice", "k", make([]byte, 32), 3)
	if err != nil {
		t.Fatal(err)
	}
	request := KeyedRequest{Actor: "alice", Key: "k", Fingerprint: make([]byte, 32)}
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { _, err := answered(ctx, tx, request); return err }); !errors.Is(err, ErrManyKeys) {
		t.Errorf("the fourth of three: %v", err)
	}
}

// TestReplaysAreShared: one process writes, all read, and one that does not write any more is lost.
func TestReplaysAreShared(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	a, other, conn := adminOf(t, dsn), adminOf(t, dsn), connected(t, dsn)
	save := func(id, state string, running bool) (stop bool) {
		t.Helper()
		stop, err := a.SaveReplay(ctx, id, json.RawMessage(`{"id": "`+id+`", "state": "`+state+`"}`), running)
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	list := func() (said string) {
		t.Helper()
		rows, err := other.Replays(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			said += fmt.Sprintf("%s %t;", r.Job, r.Lost)
		}
		return said
	}
	for range 2 {
		if save("r1", "running", true) {
			t.Error("nobody asks to stop it")
		}
	}
	if said := list(); said != `{"id": "r1", "state": "running"} false;` {
		t.Errorf("others see %s", said)
	}
	if asked, err := other.StopReplay(ctx, "r1"); !asked || err != nil || !save("r1", "running", true) {
		t.Errorf("it is not asked to stop: %t, %v", asked, err)
	}
	save("r1", "stopped", false)
	for _, id := range []string{"r1", "r2"} {
		if asked, err := other.StopReplay(ctx, id); asked || err != nil {
			t.Errorf("%s, which does not run, is asked to stop: %t, %v", id, asked, err)
		}
	}
	save("r2", "running", true)
	run(t, conn, `UPDATE pacer.replays SET beat = now() - interval '1 minute'`)
	if said := list(); said != `{"id": "r2", "state": "running"} true;{"id": "r1", "state": "stopped"} false;` {
		t.Errorf("then others see %s", said)
	}
	run(t, conn, `INSERT INTO pacer.replays (id, job, running) SELECT 'old' || g, '{}', false FROM generate_series(1, 120) g`)
	if save("r3", "running", true); strings.Count(list(), ";") != 100 {
		t.Errorf("%d are kept", strings.Count(list(), ";"))
	}
}

func adminOf(t *testing.T, dsn string) *Admin {
	t.Helper()
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}
