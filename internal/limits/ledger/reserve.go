package ledger

import (
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// aheadMinutes is how many minutes after the current one are reserved: the next, and two in case the ledger is down.
	aheadMinutes = 3
	// keptMinutes is how many past minutes are kept; use of earlier ones counts in the oldest of them.
	keptMinutes = 10
	// startUnits is the largest reservation for a quota that was not used recently; for a small one it is a hundredth,
	// since a rebuild after a loss has to count the reservations of a daemon that crashed.
	startUnits = 1000
	// nearEnd is how close to the end of its minute a call may end in the next one. It covers the time a call takes and
	// the error of the clock.
	nearEnd = 5 * second
	// settledAfter is how long after the end of a minute its units may still be given back.
	settledAfter = 10 * second
	// idleAfter is how long a quota is reserved for after it was last asked for.
	idleAfter = 2 * ledgerMinute
	// confirmEvery is how often a daemon that writes nothing else asks whether the epochs it takes from are still recorded. Without an
	// answer it goes on for confirmedFor, as long as reservations last.
	confirmEvery, confirmedFor = 5 * time.Second, 130 * time.Second
)

// Reserve keeps the ledger ahead of the use of long windows: of a quota that has one, this daemon is granted in each minute at most the
// units it has durably recorded for that minute. So after any fault of the store, the daemons or the network, the ledger never holds less
// than the units sent. The excess is corrected when the minute is over.
//
// Each write names the epochs of the data that the units are taken from. It is refused if another epoch is recorded: then other daemons
// take from another server. A daemon that cannot write goes on for confirmedFor.
//
// A call is preceded by Allow, which holds the units, and followed by Use, which releases them; GiveBack follows a
// refund. They do no I/O. Run writes the ledger; nothing can be granted of such quotas unless it runs. A nil *Reserve
// keeps nothing and allows everything. The methods are safe for concurrent use.
type Reserve struct {
	opt   Options
	units prometheus.Gauge

	urgent  retry.Signal  // something ran short
	writing chan struct{} // holds one value while a goroutine writes
	outage  retry.Outage  // of the writes

	lost func(shard int, epoch int64) // tells that an epoch is not the recorded one; set once

	mu       sync.Mutex // guards what follows
	accounts map[string]*account
	seen     map[int]sighting // the shards' times when they were opened
	epochs   map[int]int64    // of the open shards' data; of others nothing is reserved beyond what is used
	finished bool             // the same for all shards, for good
	// confirmed is when it was last certain that the epochs are the recorded ones.
	confirmed map[int]time.Time
}

// sighting is the time of a shard's store at a local time.
type sighting struct {
	store int64
	at    time.Time
}

// account is the use of one quota by this daemon.
type account struct {
	quota   *delivery.Quota // as last asked for
	most    int64           // the most units that its windows allow in a minute
	start   int64           // the reservation when it was not used recently
	held    int64           // units that calls in flight may bring
	asked   int64           // when it was last asked for
	oldest  int64           // no earlier minute is touched
	minutes map[int64]*tally
	anchors map[time.Duration]*anchor // of its fixed windows that begin at their first use
}

// tally is one minute of an account. A write that failed may have been done nevertheless; until another one succeeds,
// the ledger may hold any value tried since the last success.
type tally struct {
	used    int64
	want    int64 // the largest number of units asked for at once
	durable int64 // the least that the ledger holds
	sent    int64 // with the latest write
	unsure  bool  // it is not known whether that was done
}

// anchor is the reset of a window: the latest known, what the ledger holds, and what the latest write carried.
type anchor struct{ at, written, sent int64 }

// NewReserve makes the reserve of a ledger, nil without one.
func NewReserve(o Options) *Reserve {
	if o.Records == nil {
		return nil
	}
	factory := promauto.With(o.Registerer)
	r := &Reserve{
		opt: o, urgent: retry.NewSignal(), writing: make(chan struct{}, 1),
		accounts: map[string]*account{}, seen: map[int]sighting{}, epochs: map[int]int64{}, confirmed: map[int]time.Time{},
		units: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_ledger_reserved_units", Help: "Units of quotas reserved in the usage ledger and not used.",
		}),
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_ledger_lag_seconds", Help: "How long the usage ledger has been out of reach, 0 while it is not.",
	}, func() float64 { return r.outage.Lasts().Seconds() })
	return r
}

// now is the time of a quota's store. Under mu.
func (r *Reserve) now(q *delivery.Quota) (int64, bool) {
	return r.nowIn(shards.Of(uint64(q.Shard), r.opt.Shards))
}

// nowIn is the time of a shard's store: as predicted from the calls, and before the first one from when the shard was
// opened. Under mu.
func (r *Reserve) nowIn(shard int) (int64, bool) {
	if now, known := r.opt.Now(shard); known {
		return now, true
	}
	t, known := r.seen[shard]
	return t.store + time.Since(t.at).Microseconds(), known
}

// Allow tells how many of want units may be asked for of all the quotas at once, and holds that number of each until
// Use is called with the same quotas and number. Fewer than least, the weight of the first job, count as none. Missing
// units are being reserved: asking again a few milliseconds later gets them, unless the ledger is down.
func (r *Reserve) Allow(quotas []*delivery.Quota, least, want int64) int64 {
	if r == nil || want <= 0 {
		return want
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n, hurry := want, false
	for _, q := range quotas {
		if !inLedger(q) {
			continue
		}
		now, known := r.now(q)
		if !known {
			n = 0
			continue
		}
		a := r.account(q, now)
		a.ask(now, want)
		free := a.free(now)
		if time.Since(r.confirmed[shards.Of(uint64(q.Shard), r.opt.Shards)]) > confirmedFor {
			free = 0 // another server may grant the same units
		}
		if free < n && r.binds(q) {
			n = max(0, free)
		}
		hurry = hurry || a.lacks(now)
	}
	if n < least {
		n = 0
	}
	for _, q := range quotas {
		if a := r.accounts[q.ID]; a != nil && inLedger(q) {
			a.held += n
		}
	}
	if hurry {
		r.urgent.Send()
	}
	return n
}

// binds reports whether a quota is limited to its reservation. The use of other quotas is recorded as well, but they
// continue while the ledger is down.
func (r *Reserve) binds(q *delivery.Quota) bool {
	if q.Mode == delivery.ModeShadow {
		return false
	}
	closed := q.OnStoreFailure == "" || q.OnStoreFailure == delivery.PolicyClosed
	return closed || r.outage.Failures() == 0 && !r.finished
}

// Use releases the units that Allow held and counts the granted ones, at the store time of the grant. Pass 0 for units and grantedAt if
// nothing was granted or the outcome is unknown: a daemon does not send unknown units.
func (r *Reserve) Use(quotas []*delivery.Quota, held, units, grantedAt int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range quotas {
		if !inLedger(q) {
			continue
		}
		a := r.accounts[q.ID]
		if a == nil && units > 0 {
			a = r.account(q, grantedAt)
		}
		if a == nil {
			continue
		}
		a.held = max(0, a.held-held)
		if units > 0 {
			a.tally(a.minute(grantedAt)).used += units
		}
	}
}

// GiveBack subtracts units that were granted at a time and never sent.
func (r *Reserve) GiveBack(quotas []*delivery.Quota, units, grantedAt int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range quotas {
		a := r.accounts[q.ID]
		if a == nil || !inLedger(q) {
			continue
		}
		if t := a.minutes[a.minute(grantedAt)]; t != nil {
			t.used = max(0, t.used-units)
		}
	}
}

// Anchors records when those fixed windows of the quotas end that began at their first use. The states are those of
// the quotas' windows, in order, at the store time now.
func (r *Reserve) Anchors(quotas []*delivery.Quota, states []delivery.WindowState, now int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range quotas {
		for _, s := range states {
			if s.Quota != q.ID || s.Window >= len(q.Windows) || s.ResetAt <= now || !anchored(q.Windows[s.Window]) {
				continue
			}
			if a := r.accounts[q.ID]; a != nil {
				entry(a.anchors, q.Windows[s.Window].Span).at = s.ResetAt
			}
		}
	}
}

// anchored reports whether the ledger keeps the window's reset.
func anchored(w delivery.Window) bool {
	return w.Algorithm == delivery.AlgorithmFixed && w.Anchor == "" && w.Span > longSpan
}

// account finds or opens the account of a quota. Under mu.
func (r *Reserve) account(q *delivery.Quota, now int64) *account {
	a := r.accounts[q.ID]
	if a == nil {
		a = &account{
			oldest: now/ledgerMinute - keptMinutes, minutes: map[int64]*tally{}, anchors: map[time.Duration]*anchor{},
		}
		r.accounts[q.ID] = a
	}
	if a.quota != q {
		a.quota, a.most, a.start = q, maxPerMinute(q), startOf(q)
	}
	return a
}

// maxPerMinute is the most units that the windows of a quota allow in a calendar minute. A fixed window may restart
// in the middle of it.
func maxPerMinute(q *delivery.Quota) int64 {
	most := model.MaxLimit
	for _, w := range q.Windows {
		times := ledgerMinute/w.Span.Microseconds() + 1
		if w.Algorithm == delivery.AlgorithmFixed {
			times++
		}
		if w.Limit <= model.MaxLimit/times {
			most = min(most, w.Limit*times)
		}
	}
	return most
}

// minute returns the minute that counts use at a time.
func (a *account) minute(at int64) int64 { return max(at/ledgerMinute, a.oldest) }

// startOf is the reservation of a quota that was not used recently.
func startOf(q *delivery.Quota) int64 {
	n := int64(startUnits)
	for _, w := range q.Windows {
		n = min(n, (w.Limit+99)/100)
	}
	return n
}

// tally finds or opens a minute.
func (a *account) tally(minute int64) *tally { return entry(a.minutes, minute) }

// entry finds or opens an entry.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// ask records how many units are wanted at once.
func (a *account) ask(now, want int64) {
	a.asked = now
	t := a.tally(a.minute(now))
	t.want = max(t.want, min(want, delivery.MaxGrant))
}

// free is how many units may be asked for now.
func (a *account) free(now int64) int64 {
	minute := a.minute(now)
	free := a.tally(minute).free(a.held)
	if now+nearEnd >= (minute+1)*ledgerMinute {
		free = min(free, a.tally(minute+1).free(a.held))
	}
	return free
}

// lacks reports whether the ledger should hold more than it does for the current minute, or for the next one if that
// is near. The minutes are open.
func (a *account) lacks(now int64) bool {
	minute := a.minute(now)
	return a.target(minute, now) > a.minutes[minute].durable ||
		now+nearEnd >= (minute+1)*ledgerMinute && a.target(minute+1, now) > a.minutes[minute+1].durable
}

// free is what is left of a minute.
func (t *tally) free(held int64) int64 { return max(0, t.durable-t.used-held) }

// target is the number of units the ledger should hold for a minute. For the current and later minutes that is at least twice the use of
// the last minute or this one, and room for one more ask. A used-up quota has that room too, so that the store is the one to deny.
func (a *account) target(minute, now int64) int64 {
	t, current := a.minutes[minute], a.minute(now)
	switch {
	case settled(minute, now):
		return t.used
	case minute < current || now-a.asked > idleAfter:
		return max(t.durable, t.used)
	}
	var used, want int64
	for _, m := range []int64{current - 1, current} {
		if recent := a.minutes[m]; recent != nil {
			used, want = max(used, recent.used), max(want, recent.want)
		}
	}
	used += a.held
	n := 2 * used
	if minute == current || (minute == current+1 && now+nearEnd >= minute*ledgerMinute) {
		n += want
	}
	return max(t.durable, t.used, min(max(a.start, roundUp(n)), a.most+want))
}

// settled reports whether the use of a minute is final.
func settled(minute, now int64) bool { return now >= (minute+1)*ledgerMinute+settledAfter }

// roundUp keeps three binary digits, so that steady use does not cause a write each time.
func roundUp(n int64) int64 {
	step := int64(1) << max(0, bits.Len64(uint64(n))-3)
	return (n + step - 1) / step * step
}
