package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/shards"
)

// TestAStoreWithoutARunIDIsRefused: its next process could not be told from this one.
func TestAStoreWithoutARunIDIsRefused(t *testing.T) {
	t.Parallel()
	client := realClient(t)
	l := newLua(t, client)
	l.now = epoch
	s := l.engine("a").shards[0]
	state, err := sources.ReadFile("lua/state.lua")
	must(t, err)
	restore, err := sources.ReadFile("lua/restore.lua")
	must(t, err)
	nameless := `
local answer = call
call = function(name, ...) if name == 'INFO' then return 'redis_version:7' end return answer(name, ...) end
`
	files := fstest.MapFS{"state": {Data: append(state, nameless...)}, "restore": {Data: restore}}
	err = s.runUnchecked(t.Context(), shards.NewScript(files, "state", "restore"), nil, encodeRestore(s.keys, 7, nil, epoch, firstPart|lastPart))
	if err == nil || !strings.Contains(err.Error(), "run_id") {
		t.Errorf("it was adopted: %v", err)
	}
}

// TestARestoreInPartsIsWholeOrNothing: between the parts of a restore the store loses its data, is taken over by
// another restore, or neither.
func TestARestoreInPartsIsWholeOrNothing(t *testing.T) {
	client := realClient(t)
	l := newLua(t, client)
	e := l.engine("a")
	s := e.shards[0]
	ctx := context.Background()
	now := epoch
	l.now = now
	var quotas []ledger.Restored
	var specs []*delivery.Quota
	for i := range 3 {
		q := &delivery.Quota{ID: fmt.Sprint("q", i), Revision: 1, Windows: windows(1000, 5*time.Minute)}
		specs = append(specs, q)
		used := []ledger.Dated{{At: now - second, Units: 300}, {At: now, Units: 100 * int64(i)}}
		quotas = append(quotas, ledger.Restored{Quota: q, Windows: []ledger.Window{{Units: used}}})
	}
	part := func(epoch int64, i, kind int) error {
		return s.runUnchecked(ctx, restoreScript, nil, encodeRestore(s.keys, epoch, quotas[i:i+1], now, kind))
	}
	wipe := func() {
		for _, k := range []string{s.keys.clock(), s.keys.quota("q0"), s.keys.quota("q1"), s.keys.quota("q2")} {
			if err := client.Del(ctx, k).Err(); err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
		}
	}
	holds := func(want int64) {
		t.Helper()
		if got, err := (dataStore{e}).Inspect(ctx, 0); err != nil || got.Epoch != want {
			t.Errorf("the store holds %d, %v; want %d", got.Epoch, err, want)
		}
	}
	// The data is lost in between.
	must(t, part(7, 0, firstPart))
	wipe()
	if err := part(7, 1, 0); !errors.Is(err, ledger.ErrEpoch) {
		t.Errorf("after a loss: %v", err)
	}
	if err := part(7, 2, lastPart); !errors.Is(err, ledger.ErrEpoch) {
		t.Errorf("after a loss: %v", err)
	}
	holds(0)
	// Another restore begins in between, and the first cannot end.
	for _, step := range []struct {
		epoch   int64
		i, kind int
		refused bool
	}{{8, 0, firstPart, false}, {9, 0, firstPart, false}, {8, 1, 0, true}, {9, 1, 0, false}, {8, 2, lastPart, true}, {9, 2, lastPart, false}} {
		if err := part(step.epoch, step.i, step.kind); errors.Is(err, ledger.ErrEpoch) != step.refused {
			t.Errorf("%+v: %v", step, err)
		}
	}
	holds(9)
	if err := part(8, 0, firstPart|lastPart); !errors.Is(err, ledger.ErrEpoch) {
		t.Errorf("a store in force was restored: %v", err)
	}
	for i, w := range l.Peek(now, specs) {
		if want := 700 - 100*int64(i); w.Remaining != want {
			t.Errorf("q%d: %d remain, want %d", i, w.Remaining, want)
		}
	}
	must(t, (dataStore{e}).Retire(ctx, 0, 9))
	holds(0)
}

// TestAnUnknownAlgorithmIsRestored as sliding: once the row is corrected, the quota counts what was used.
func TestAnUnknownAlgorithmIsRestored(t *testing.T) {
	l := newLua(t, realClient(t))
	e, now := l.engine("a"), epoch
	l.now = now
	bad := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1000, 5*time.Minute)}
	right := *bad
	right.Revision = 2
	bad.Windows = []delivery.Window{{Limit: 1000, Span: 5 * time.Minute, Algorithm: "leaky"}}
	quotas := []ledger.Restored{{Quota: bad, Windows: []ledger.Window{{Units: []ledger.Dated{{At: now, Units: 300}}}}}}
	s := e.shards[0]
	must(t, s.runUnchecked(t.Context(), restoreScript, nil, encodeRestore(s.keys, 7, quotas, now, firstPart|lastPart)))
	if got := l.Peek(now, []*delivery.Quota{&right}); len(got) != 1 || got[0].Remaining != 700 {
		t.Errorf("%+v", got)
	}
}
