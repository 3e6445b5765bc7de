package view

import (
	"context"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Key is one value of the key of a keyed quota at one moment.
type Key struct {
	Quota     string      `json:"quota"`
	Per       string      `json:"per"`
	Key       string      `json:"key"`
	Windows   []KeyWindow `json:"windows"`
	Own       bool        `json:"own" doc:"the windows are its own, not the quota's"`
	HeldUntil *time.Time  `json:"held_until,omitempty" doc:"no job of it is sent before: by hand, or since the destination asked for it"`
	FreeAt    *time.Time  `json:"free_at,omitempty" doc:"when the next job is allowed; absent: now"`
	LineUntil *time.Time  `json:"line_until,omitempty" doc:"up to when turns are reserved"`
}

// KeyWindow is a window of a Key.
type KeyWindow struct {
	Window string `json:"window"`
	Used   int64  `json:"used"`
	Limit  int64  `json:"limit"`
}

// KeyEdit is a change of what is set for one value of a key; what is nil stays.
type KeyEdit struct {
	Windows   *[]string  `json:"windows,omitempty" maxItems:"16" example:"[\"50/1s\"]" doc:"its windows instead of the quota's; none: the quota's" nullable:"false"`
	HeldUntil *time.Time `json:"held_until,omitempty" doc:"no job of it is sent before; a time in the past releases it" nullable:"false"`
}

// keyed returns a keyed quota with what is set for one value.
func (s *quotaStore) keyed(ctx context.Context, quota, value string) (*delivery.Quota, error) {
	if len(value) == 0 || len(value) > delivery.MaxIDLength {
		return nil, catalog.Fault(catalog.ErrInvalid, "key: it must have 1 to %d bytes", delivery.MaxIDLength)
	}
	q, err := s.catalog.GetKeyed(ctx, quota, value)
	if err == nil && q.Per == "" {
		return nil, catalog.Fault(catalog.ErrInvalid, "quota %s is not keyed: all jobs of its campaigns share its windows", notation.Shorten(quota))
	}
	return q, err
}

func (s *quotaStore) key(ctx context.Context, quota, value string) (*Key, error) {
	q, err := s.keyed(ctx, quota, value)
	if err != nil {
		return nil, err
	}
	shown, err := s.keys.Show(ctx, q, value)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	k := &Key{Quota: quota, Per: q.Per, Key: value, Windows: []KeyWindow{}, Own: len(q.Keys[value].Windows) > 0}
	for i, w := range q.WindowsOf(value) {
		k.Windows = append(k.Windows, KeyWindow{notation.FormatWindow(w), shown.Used[i], w.Limit})
	}
	after := func(d time.Duration) *time.Time {
		if d <= 0 {
			return nil
		}
		return new(now.Add(d).UTC().Truncate(time.Millisecond))
	}
	k.HeldUntil, k.FreeAt, k.LineUntil = after(max(shown.Held, time.Until(q.Keys[value].HeldUntil))), after(shown.Free), after(shown.Line)
	return k, nil
}

func (s *quotaStore) setKey(ctx context.Context, quota, value string, e KeyEdit) (*Key, error) {
	q, err := s.keyed(ctx, quota, value)
	if err != nil {
		return nil, err
	}
	change := catalog.KeyChange{HeldUntil: e.HeldUntil}
	if e.Windows != nil {
		windows, err := catalog.ParseWindows(strings.Join(*e.Windows, ","))
		if err != nil {
			return nil, catalog.Fault(catalog.ErrInvalid, "windows: %s", err)
		}
		change.Windows = &windows
	}
	release := e.HeldUntil != nil && !e.HeldUntil.After(time.Now())
	if release {
		change.HeldUntil = &time.Time{}
		if err := s.keys.Release(ctx, q, value); err != nil { // before the database has been changed, as its error says
			return nil, err
		}
	}
	if err := s.catalog.SetKey(ctx, quota, value, change); err != nil {
		return nil, err
	}
	k, err := s.key(ctx, quota, value)
	if err != nil {
		return nil, catalog.Fault(catalog.ErrInDoubt, "the key is changed, but could not be read after that: %s", err)
	}
	return k, nil
}
