package limits

import (
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	// aheadMinutes is how many minutes after the current one are reserved: the next, and two for which the ledger may
	// be away.
	aheadMinutes = 3
	// keptMinutes is how many past minutes are remembered; use of earlier ones counts in the oldest of them.
	keptMinutes = 10
	// startUnits is what is reserved of a quota that was not used lately, at the most; of a small one it is a hundredth,
	// for a rebuild after a loss has to count what a daemon that crashed had reserved.
	startUnits = 1000
	// nearEnd is how close to the end of its minute a call may end in the next one. It covers the time a call takes and
	// the error of the clock.
	nearEnd = 5 * second
	// settledAfter is how long after the end of a minute its units may still come back.
	settledAfter = 10 * second
	// idleAfter is how long a quota is reserved for after it was last asked for.
	idleAfter = 2 * ledgerMinute
)

// reserve keeps the ledger ahead of the use of long windows: of a quota that has one, this daemon is granted in each
// minute at most what it has durably written down for that minute. So whatever happens to the store, the daemons and
// the network, the ledger never says less than what was sent; what it says too much is corrected when the minute is
// over.
//
// Before a call come allow, which holds the units, and after it use, which lets go of them; giveBack follows a refund.
// They do no I/O. The writer is run; nothing can be granted of such quotas unless it runs. A nil *reserve keeps
// nothing and allows everything. The methods are safe for concurrent use.
type reserve struct {
	ledger Ledger
	node   string
	quotas func() []*delivery.Quota
	clock  func(shard int) (int64, bool)
	shards int
	log    *slog.Logger
	units  prometheus.Gauge

	urgent  chan struct{} // something ran short; holds one
	writing chan struct{} // holds one while somebody writes

	mu       sync.Mutex // guards what follows
	accounts map[string]*account
	seen     map[int]sighting // the shards' times when they were opened
	retired  map[int]bool     // shards of which nothing is reserved that is not used
	finished bool             // the same of all, for good
	failing  bool             // the latest write failed
	current  time.Time        // when the ledger was last found up to date; zero: not yet
}

// sighting is the time of a shard's store at some time here.
type sighting struct {
	store int64
	at    time.Time
}

// account is the use of one quota by this daemon.
type account struct {
	quota   *delivery.Quota // as last asked for
	most    int64           // the units that its windows let go in a minute, whatever happens
	start   int64           // what is reserved of it when it was not used lately
	held    int64           // hundredths of units that calls under way may bring
	asked   int64           // when it was last asked for
	oldest  int64           // no earlier minute is touched
	minutes map[int64]*tally
	anchors map[time.Duration]*anchor // of its fixed windows that begin at their first use
}

// tally is one minute of an account. A write that failed may have been done all the same; until another one succeeds,
// the ledger holds anything that was tried since the last that did.
type tally struct {
	used    int64 // hundredths of units, since a quota that is rolled out counts a percentage
	want    int64 // the largest number of units asked for at once
	durable int64 // what the ledger holds at the least
	sent    int64 // with the latest write
	unsure  bool  // whether that was done
}

// anchor is the reset of a window: the latest known, what the ledger holds, and what the latest write carried.
type anchor struct{ at, written, sent int64 }

// newReserve makes the reserve of a ledger, nil without one.
func newReserve(o ledgerOptions) (*reserve, error) {
	if o.Ledger == nil {
		return nil, nil //nolint:nilnil // a nil reserve is one that keeps nothing
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &reserve{
		ledger: o.Ledger, node: o.Node, quotas: o.Quotas, clock: o.Now, shards: o.Shards, log: o.Logger,
		urgent: make(chan struct{}, 1), writing: make(chan struct{}, 1),
		accounts: map[string]*account{}, seen: map[int]sighting{}, retired: map[int]bool{},
		units: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_ledger_reserved_units", Help: "Units of quotas reserved in the usage ledger and not used.",
		}),
	}
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_ledger_lag_seconds", Help: "How long the usage ledger has been out of reach, 0 while it is not.",
	}, r.lag)
	return r, register(o.Registerer, r.units, lag)
}

// now is the time of the store that keeps a quota: as the calls foretell it, and before the first one as it was when
// the shard was opened. Under mu.
func (r *reserve) now(q *delivery.Quota) (int64, bool) {
	shard := shardOf(q, r.shards)
	if now, known := r.clock(shard); known {
		return now, true
	}
	t, known := r.seen[shard]
	return t.store + time.Since(t.at).Microseconds(), known
}

// allow tells how many of want units may be asked for of all the quotas at once, and holds so many of each until use is
// called with the same quotas and number. Fewer than least, the weight of the first job, are none. What is missing is
// being reserved: asking again a few milliseconds later brings it, unless the ledger is away.
func (r *reserve) allow(quotas []*delivery.Quota, least, want int64) int64 {
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
		if free := a.free(now); free < n && r.binds(q) {
			n = max(0, free)
		}
		hurry = hurry || a.lacks(now)
	}
	if n < least {
		n = 0
	}
	for _, q := range quotas {
		if a := r.accounts[q.ID]; a != nil && inLedger(q) {
			a.held += n * model.Part(q)
		}
	}
	if hurry {
		select {
		case r.urgent <- struct{}{}:
		default:
		}
	}
	return n
}

// binds tells whether a quota is held to what is reserved. The others' use is written down as well, but they go on
// while the ledger is away.
func (r *reserve) binds(q *delivery.Quota) bool {
	if q.Mode == delivery.ModeShadow {
		return false
	}
	closed := q.OnStoreFailure == "" || q.OnStoreFailure == delivery.PolicyClosed
	return closed || !r.failing && !r.finished
}

// use lets go of what allow held and counts the units that were granted, at the store time of the grant; 0 of both
// where nothing was, or where the outcome is unknown: what a daemon does not know of it does not send.
func (r *reserve) use(quotas []*delivery.Quota, held, units, grantedAt int64) {
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
		a.held = max(0, a.held-held*model.Part(q))
		if units > 0 {
			a.tally(a.minute(grantedAt)).used += units * model.Part(q)
		}
	}
}

// giveBack takes units off again that were granted at a time and never sent.
func (r *reserve) giveBack(quotas []*delivery.Quota, units, grantedAt int64) {
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
			t.used = max(0, t.used-units*model.Part(q))
		}
	}
}

// anchors notes when the fixed windows of the quotas end that began at their first use. The states are those of the
// quotas' windows, in order, at the store time now.
func (r *reserve) anchors(quotas []*delivery.Quota, states []delivery.WindowState, now int64) {
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
				a.anchor(q.Windows[s.Window].Span).at = s.ResetAt
			}
		}
	}
}

// anchored tells whether the ledger keeps the window's reset.
func anchored(w delivery.Window) bool {
	return w.Algorithm == delivery.AlgorithmFixed && w.Anchor == "" && w.Span > longSpan
}

// account finds or opens the account of a quota. Under mu.
func (r *reserve) account(q *delivery.Quota, now int64) *account {
	a := r.accounts[q.ID]
	if a == nil {
		a = &account{
			oldest: now/ledgerMinute - keptMinutes, minutes: map[int64]*tally{}, anchors: map[time.Duration]*anchor{},
		}
		r.accounts[q.ID] = a
	}
	if a.quota != q {
		a.quota, a.most, a.start = q, mostInAMinute(q), startOf(q)
	}
	return a
}

// mostInAMinute is how many units the windows of a quota let go in a calendar minute at the most. A fixed window may
// begin anew in the middle of it.
func mostInAMinute(q *delivery.Quota) int64 {
	most := maxLimit
	for _, w := range q.Windows {
		times := ledgerMinute/w.Span.Microseconds() + 1
		if w.Algorithm == delivery.AlgorithmFixed {
			times++
		}
		if w.Limit <= maxLimit/times {
			most = min(most, w.Limit*times)
		}
	}
	return most
}

// minute is the one in which use at a time counts.
func (a *account) minute(at int64) int64 { return max(at/ledgerMinute, a.oldest) }

// startOf is what is reserved of a quota that was not used lately.
func startOf(q *delivery.Quota) int64 {
	n := int64(startUnits)
	for _, w := range q.Windows {
		n = min(n, (w.Limit+99)/100)
	}
	return n
}

// tally finds or opens a minute.
func (a *account) tally(minute int64) *tally {
	t := a.minutes[minute]
	if t == nil {
		t = &tally{}
		a.minutes[minute] = t
	}
	return t
}

func (a *account) anchor(span time.Duration) *anchor {
	n := a.anchors[span]
	if n == nil {
		n = &anchor{}
		a.anchors[span] = n
	}
	return n
}

// ask notes how many units are wanted at once.
func (a *account) ask(now, want int64) {
	a.asked = now
	t := a.tally(a.minute(now))
	t.want = max(t.want, min(want, delivery.MaxGrant))
}

// free is how many units may be asked for now.
func (a *account) free(now int64) int64 {
	part := model.Part(a.quota)
	minute := a.minute(now)
	free := a.tally(minute).free(a.held) / part
	if now+nearEnd >= (minute+1)*ledgerMinute {
		free = min(free, a.tally(minute+1).free(a.held)/part)
	}
	return free
}

// lacks tells whether the ledger should hold more for the current minute than it does, or for the next one when that is
// near. The minutes are open.
func (a *account) lacks(now int64) bool {
	minute := a.minute(now)
	return a.target(minute, now) > a.minutes[minute].durable ||
		now+nearEnd >= (minute+1)*ledgerMinute && a.target(minute+1, now) > a.minutes[minute+1].durable
}

// free is what is left of a minute in hundredths of units.
func (t *tally) free(held int64) int64 { return max(0, 100*t.durable-t.used-held) }

// units is the use in whole units.
func (t *tally) units() int64 { return (t.used + 99) / 100 }

// target is what the ledger should hold for a minute. Of the current and the coming minutes that is at least twice what
// was used in the last or in this one, and room for one more ask: even where the quota is used up, so that it is the
// store that denies.
func (a *account) target(minute, now int64) int64 {
	t, current := a.minutes[minute], a.minute(now)
	switch {
	case settled(minute, now):
		return t.units()
	case minute < current || now-a.asked > idleAfter:
		return max(t.durable, t.units())
	}
	var used, want int64
	for _, m := range []int64{current - 1, current} {
		if recent := a.minutes[m]; recent != nil {
			used, want = max(used, recent.units()), max(want, recent.want)
		}
	}
	used += (a.held + 99) / 100
	n := 2 * used
	if minute == current || (minute == current+1 && now+nearEnd >= minute*ledgerMinute) {
		n += want
	}
	return max(t.durable, t.units(), min(max(a.start, roundUp(n)), a.most+want))
}

// settled tells whether the use of a minute is final.
func settled(minute, now int64) bool { return now >= (minute+1)*ledgerMinute+settledAfter }

// roundUp keeps three binary digits, so that steady use is not written anew each time.
func roundUp(n int64) int64 {
	step := int64(1) << max(0, bits.Len64(uint64(n))-3)
	return (n + step - 1) / step * step
}
