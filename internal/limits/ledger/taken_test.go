package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// loss is a store that loses its data while daemons take ten units each, ten times a second.
type loss struct {
	daemons   int
	killed    int           // of them
	before    time.Duration // how long before the loss they are
	away      time.Duration // how long the ledger has been out of reach by then; it is back two seconds later
	down      time.Duration // how long the store does not answer
	idle      bool          // nothing is taken in the last second but by those that are killed
	used, sum int64         // what was taken, and what counts as used afterwards
}

func (x *loss) run() {
	const month = 30 * 24 * time.Hour
	l, s := newMemLedger(), newMemStore()
	quotas := []*delivery.Quota{{ID: "q", Revision: 1, Windows: windows(1_000_000, month)}}
	rates := func(in time.Duration) map[string]int64 {
		return map[string]int64{"q": int64(x.daemons) * 100 * int64(in/time.Second+1)}
	}
	var list []*guarded
	for i := range x.daemons {
		list = append(list, newRated(fmt.Sprint(i), l, s, quotas, rates))
	}
	time.Sleep(4 * time.Second)
	lost := time.Now().Add(200 * time.Second)
	time.AfterFunc(200*time.Second-x.away, func() {
		if x.away > 0 {
			l.Fail(errors.New("away"))
		}
	})
	time.AfterFunc(202*time.Second, func() { l.Fail(nil) })
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, d := range list {
		all.Go(func() {
			end := lost
			switch {
			case i < x.killed:
				end = lost.Add(-x.before)
			case x.idle:
				end = lost.Add(-time.Second)
			}
			for ; time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				n, _, _ := d.take(context.Background(), s, quotas[0], 10)
				mu.Lock()
				x.used += n
				mu.Unlock()
			}
			if i < x.killed {
				d.kill()
			}
		})
	}
	all.Wait()
	time.Sleep(time.Until(lost))
	s.Change(func() { s.data = emptyData(); s.Err = errors.New("down") })
	time.Sleep(x.down)
	s.Change(func() { s.Err = nil })
	for _, d := range list[x.killed:] {
		_, _, _ = d.take(context.Background(), s, quotas[0], 0)
	}
	time.Sleep(30 * time.Second)
	last := newRated("last", l, s, quotas, rates)
	time.Sleep(30 * time.Second)
	s.Change(func() {
		for _, u := range s.data.windows["q"][month] {
			x.sum += u.Units
		}
	})
	for _, d := range append(list[x.killed:], last) {
		d.stop()
	}
}

// TestNothingTakenIsForgottenNorMuchAdded: what counts as used after a loss is what was used. Of daemons that were killed within two minutes
// before, it may be all that they could have taken since the ledger was written.
func TestNothingTakenIsForgottenNorMuchAdded(t *testing.T) {
	testservices.Simulation(t)
	testservices.Few(t, 40, func(rt *rapid.T) {
		seconds := func(most int, name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 10*most).Draw(rt, name)) * time.Second / 10
		}
		x := loss{daemons: rapid.IntRange(1, 4).Draw(rt, "daemons"), idle: rapid.Bool().Draw(rt, "idle")}
		x.killed = rapid.IntRange(0, x.daemons).Draw(rt, "killed")
		x.before, x.down = seconds(10, "killed before"), seconds(30, "down")
		if rapid.Bool().Draw(rt, "away") {
			x.away = seconds(100, "away")
		}
		synctest.Test(t, func(*testing.T) { x.run() })
		perSecond := int64(x.daemons) * 100
		most := x.used + perSecond/5
		if x.killed == x.daemons {
			most += int64((x.before+30*time.Second)/time.Second) * perSecond // nobody writes the ledger until the last one comes
		}
		if x.killed > 0 { // the ledger is two seconds old at most, the rebuild begins within five, and slots of one are granted ahead
			most += int64((x.away+x.down+9*time.Second)/time.Second) * perSecond
		}
		if x.used < 1000 || x.sum < x.used || x.sum > most {
			rt.Fatalf("%d of %d used units are counted, at most %d should be", x.sum, x.used, most)
		}
	})
}

// TestTakenIsBounded: a ledger that is out of reach for days costs little memory, and nothing that was taken.
func TestTakenIsBounded(t *testing.T) {
	m := NewFence(Options{Records: newMemLedger(), Shards: 1}, nil)
	q := []*delivery.Quota{{ID: "q", Windows: windows(10, time.Hour)}}
	m.admit(0, 7, time.Time{})
	for i := range int64(20_000) {
		if !m.Add(0, 7, q, 2, i*second) {
			t.Fatal("refused")
		}
	}
	m.GiveBack(0, 7, q, 1, 3*second)
	m.GiveBack(0, 6, q, 1, 3*second)
	if m.Add(0, 6, q, 5, 1) {
		t.Error("units of other data are taken")
	}
	if n := len(m.shards[0].taken["q"]); n > maxTaken {
		t.Errorf("%d entries", n)
	}
	total := func(since int64) (n int64) {
		for _, u := range m.since(0, since) {
			n += u.Units
		}
		return n
	}
	if n := total(0); n != 39_999 {
		t.Errorf("%d units", n)
	}
	if n := total(4 * second); n != 39_992 {
		t.Errorf("%d units since the fifth second", n)
	}
	m.written(0, 7, 4*second, time.Now())
	if n := total(0); n != 39_992 {
		t.Errorf("%d units that are not written", n)
	}
	m.Lost(0, 7, false)
	if m.Add(0, 7, q, 5, 30_000*second) {
		t.Error("units are taken while nobody knows whether the data are lost")
	}
	m.admit(0, 7, time.Now()) // they are not
	if n := total(0); n != 39_992 {
		t.Errorf("%d units that are not written, after a loss that was none", n)
	}
}

// TestUnitsThatGoBackAreSubtractedOnce: also where replies came out of order, so that a tenth of a second has several entries.
func TestUnitsThatGoBackAreSubtractedOnce(t *testing.T) {
	m := NewFence(Options{Records: newMemLedger(), Shards: 1}, nil)
	q := []*delivery.Quota{{ID: "q", Windows: windows(10, time.Hour)}}
	m.admit(0, 7, time.Time{})
	for _, at := range []int64{second, 2 * second, second + 1} {
		m.Add(0, 7, q, 10, at)
	}
	left := int64(30)
	for _, back := range []int64{4, 12} {
		m.GiveBack(0, 7, q, back, second)
		left -= back
		sum := int64(0)
		for _, u := range m.since(0, 0) {
			sum += u.Units
		}
		if sum != left {
			t.Errorf("%d units are left, want %d", sum, left)
		}
	}
}

// TestWithoutTheLedgerClosedQuotasStop two minutes after it was reached last, and no others do.
func TestWithoutTheLedgerClosedQuotasStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newMemLedger()
		l.Epochs[0] = delivery.Incarnation{Epoch: 1}
		o := Options{
			Records: l, Node: "n", Shards: 1, Now: storeNow, Quotas: func() []*delivery.Quota { return nil }, Registerer: prometheus.NewRegistry(),
		}
		m := NewFence(o, nil)
		m.admit(0, 1, time.Now())
		long := windows(10, time.Hour)
		for name, tc := range map[string]struct {
			q     delivery.Quota
			stops bool
		}{
			"closed":           {delivery.Quota{Windows: long, OnStoreFailure: delivery.PolicyClosed}, true},
			"nothing said":     {delivery.Quota{Windows: long}, true},
			"open":             {delivery.Quota{Windows: long, OnStoreFailure: delivery.PolicyOpen}, false},
			"shadow":           {delivery.Quota{Windows: long, Mode: delivery.ModeShadow}, false},
			"eventual":         {delivery.Quota{Windows: long, Mode: delivery.ModeEventual}, false},
			"no long window":   {delivery.Quota{Windows: windows(10, time.Minute)}, false},
			"covers no longer": {delivery.Quota{Windows: long, Exempt: 100}, false},
		} {
			m.admit(0, 1, time.Now())
			time.Sleep(goesOnFor - time.Second)
			if !m.Allows(0, []*delivery.Quota{&tc.q}) {
				t.Errorf("%s: stopped too early", name)
			}
			time.Sleep(2 * time.Second)
			if m.Allows(0, []*delivery.Quota{&tc.q}) == tc.stops {
				t.Errorf("%s: stops is not %v", name, tc.stops)
			}
		}
		var none *Fence
		none.GiveBack(0, 1, nil, 1, 1)
		if !none.Allows(0, nil) || !none.Add(0, 1, nil, 1, 1) {
			t.Error("without a ledger not everything is allowed")
		}
	})
}
