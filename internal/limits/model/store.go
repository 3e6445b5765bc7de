package model

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	second = int64(time.Second / time.Microsecond)

	// maxRivals bounds the daemons that a timeline or a quota remembers. Beyond that the one that has not asked for longest is removed, which
	// costs it only its place in the queue.
	maxRivals = 64
	// claimFor is how long after its last ask room is kept for a daemon, however far off the time is that it was told: it may
	// be gone. A daemon with a campaign that waits for a quota asks at least every 12.5 s.
	claimFor = 15 * second
	// maxPhase bounds the delay of the first slot of a new timeline.
	maxPhase = 200_000
	// sparse is the least spacing that makes the place of a campaign's slots matter.
	sparse = 10_000
	// wantedFor is how long after being cut short a daemon may fail to ask before it counts as stopped.
	wantedFor = 5 * second
	// probeEvery is how often a half-open gate lets one job through.
	probeEvery = second
	// probed is when to ask again while such a job is under way: it may open the gate at any time.
	probed = second / 4
	// maxCredit bounds a burst in microseconds, so that all sums stay below 2^53.
	maxCredit = int64(1) << 50
	// costScale is the virtual service of one unit at weight 1.
	costScale = int64(1_000_000)
)

// Store holds timelines, windows and gates in memory. It is not safe for concurrent use.
type Store struct {
	now       int64
	timelines map[string]*timeline
	quotas    map[string]*quota
	gates     map[string]*gate
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{timelines: map[string]*timeline{}, quotas: map[string]*quota{}, gates: map[string]*gate{}}
}

// clock forces time to be monotonic.
func (s *Store) clock(now int64) int64 {
	s.now = max(s.now, now)
	return s.now
}

// Take grants slots to node, one item per ask. The asks are served in order; each sees what the earlier ones took.
func (s *Store) Take(now int64, node string, asks []delivery.Ask) delivery.TakeReply {
	now = s.clock(now)
	reply := delivery.TakeReply{Clocks: []delivery.ShardClock{{Now: now}}, Items: make([]delivery.Granted, len(asks))}
	for i := range asks {
		t := taking{store: s, now: now, node: node, ask: &asks[i]}
		reply.Items[i] = t.run()
	}
	return reply
}

// Refund hands undispatched units back: slots at the end of a timeline become free again, others are lost, and the
// windows forget the units unless the bucket they lie in has already fallen out.
func (s *Store) Refund(now int64, grants []delivery.Grant) {
	now = s.clock(now)
	for _, r := range grants {
		if r.Units <= 0 {
			continue
		}
		if tl := s.timelines[r.From.Campaign.ID]; tl != nil {
			tl.refund(now, r)
		}
		for _, q := range r.From.Campaign.Quotas {
			s.quota(q.ID).refund(now, q, r)
		}
	}
}

// Peek reports the windows of the quotas in their order and changes nothing.
func (s *Store) Peek(now int64, quotas []*delivery.Quota) []delivery.WindowState {
	now = max(now, s.now)
	var out []delivery.WindowState
	for _, q := range quotas {
		for i, w := range s.quotas[q.ID].copied().open(q, now, 0) {
			out = append(out, w.state(now, q.ID, i))
		}
	}
	return out
}

// quota returns the state of a quota, opening it if there is none.
func (s *Store) quota(id string) *quota {
	q := s.quotas[id]
	if q == nil {
		q = &quota{windows: map[int64]*window{}}
		s.quotas[id] = q
	}
	return q
}
