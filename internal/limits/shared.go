package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// sweepTurns is in how many turns all quotas are read; those that change are read in each.
	sweepTurns = 4
	// stillAfter is after how many readings without a change a quota counts as idle.
	stillAfter = 5
	// learntFor is how long what was learnt of a quota is passed on: a sweep may be missed.
	learntFor = (2*sweepTurns + 1) * gaugesEvery
	// listenFor is how long a daemon listens without hearing anything new before it reads for itself.
	listenFor = 3 * gaugesEvery
)

// WindowBoard is where windows are read, and where one daemon tells the others what it has read; *Engine is one.
type WindowBoard interface {
	Peeker
	PublishWindows(ctx context.Context, told []byte) error
	PublishedWindows(ctx context.Context) ([]byte, error)
}

// SharedWindows reads windows for a whole fleet: the daemon that leads reads those of quotas with traffic each time, and the
// others in turns, and tells the others. A daemon that hears nothing new, since the one that leads is gone, reads all by itself.
// Its Peeker is for one caller, about once a second.
type SharedWindows struct {
	board WindowBoard
	leads func() bool

	turn   int
	learnt map[string]learnt // by quota
	heard  int64             // the time in what was told last
	at     time.Time         // when that was
}

// learnt is what is known of a quota.
type learnt struct {
	revision int64
	states   []delivery.WindowState
	at       time.Time
	still    int // readings without a change
}

// NewSharedWindows makes SharedWindows.
func NewSharedWindows(b WindowBoard, leads func() bool) *SharedWindows {
	return &SharedWindows{board: b, leads: leads, learnt: map[string]learnt{}}
}

// Peek implements Peeker.
func (s *SharedWindows) Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
	now := time.Now()
	byID := make(map[string]*delivery.Quota, len(quotas))
	for _, q := range quotas {
		byID[q.ID] = q
	}
	for id := range s.learnt {
		if byID[id] == nil {
			delete(s.learnt, id)
		}
	}
	var err error
	switch {
	case s.leads():
		var told []byte
		if told, err = s.read(ctx, s.due(quotas), byID, now); len(told) > 0 {
			err = errors.Join(err, s.board.PublishWindows(ctx, told))
		}
	case !s.listen(ctx, byID, now):
		_, err = s.read(ctx, quotas, byID, now)
	}
	var all []delivery.WindowState
	for _, q := range quotas {
		if l := s.learnt[q.ID]; l.revision == q.Revision && now.Sub(l.at) <= learntFor {
			all = append(all, l.states...)
		}
	}
	return all, err
}

// due returns the quotas to be read in this turn.
func (s *SharedWindows) due(quotas []*delivery.Quota) (list []*delivery.Quota) {
	s.turn++
	for i, q := range quotas {
		if l, known := s.learnt[q.ID]; !known || l.revision != q.Revision || l.still < stillAfter || (i+s.turn)%sweepTurns == 0 {
			list = append(list, q)
		}
	}
	return list
}

// read reads quotas, and returns what there is to be told of them.
func (s *SharedWindows) read(ctx context.Context, quotas []*delivery.Quota, byID map[string]*delivery.Quota, now time.Time) ([]byte, error) {
	states, err := s.board.Peek(ctx, quotas)
	told := put(nil, 7, now.UnixMicro())
	for len(states) > 0 {
		id := states[0].Quota
		n := slices.IndexFunc(states, func(w delivery.WindowState) bool { return w.Quota != id })
		if n < 0 {
			n = len(states)
		}
		s.learn(byID[id], states[:n], now)
		told = appendQuota(told, byID[id], states[:n])
		states = states[n:]
	}
	return told, err
}

// learn records the windows of a quota.
func (s *SharedWindows) learn(q *delivery.Quota, states []delivery.WindowState, now time.Time) {
	l := s.learnt[q.ID]
	l.still++
	if l.revision != q.Revision || !slices.Equal(l.states, states) {
		l.still = 0
	}
	l.revision, l.states, l.at = q.Revision, states, now
	s.learnt[q.ID] = l
}

// listen learns what was told; false if nothing new was for too long.
func (s *SharedWindows) listen(ctx context.Context, byID map[string]*delivery.Quota, now time.Time) bool {
	told, err := s.board.PublishedWindows(ctx)
	if err != nil {
		return now.Sub(s.at) < listenFor
	}
	in := reader{rest: string(told)}
	when := in.next(7)
	if in.err != nil || when == s.heard {
		return now.Sub(s.at) < listenFor
	}
	for in.rest != "" {
		id, revision, count := in.text(int(in.next(2))), in.next(7), in.next(1)
		var states []delivery.WindowState
		for range count {
			states = append(states, delivery.WindowState{
				Quota: id, Window: int(in.next(1)), Remaining: in.next(7), ResetAt: in.next(7), FreeAt: in.next(7),
			})
		}
		if q := byID[id]; q != nil && in.err == nil && q.Revision == revision && int(count) == len(q.Windows) {
			s.learn(q, states, now)
		}
	}
	s.heard, s.at = when, now
	return true
}

// appendQuota encodes the windows of a quota.
func appendQuota(b []byte, q *delivery.Quota, states []delivery.WindowState) []byte {
	b = append(put(b, 2, int64(len(q.ID))), q.ID...)
	b = put(put(b, 7, q.Revision), 1, int64(len(states)))
	for _, w := range states {
		b = put(put(b, 1, int64(w.Window)), 7, w.Remaining, w.ResetAt, w.FreeAt)
	}
	return b
}

// PublishWindows leaves for the other daemons what was read of windows.
func (e *Engine) PublishWindows(ctx context.Context, told []byte) error {
	s := e.shards[0]
	ctx, cancel := context.WithTimeout(ctx, s.master.timeout)
	defer cancel()
	if err := s.master.client.Set(ctx, s.keys.windows(), told, learntFor).Err(); err != nil {
		return fmt.Errorf("tell of windows: %w", err)
	}
	return nil
}

// PublishedWindows is what was left by PublishWindows last, nil if nothing was lately.
func (e *Engine) PublishedWindows(ctx context.Context) ([]byte, error) {
	s := e.shards[0]
	ctx, cancel := context.WithTimeout(ctx, s.master.timeout)
	defer cancel()
	told, err := s.master.client.Get(ctx, s.keys.windows()).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("hear of windows: %w", err)
	}
	return told, nil
}
