package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// memBoard is a WindowBoard that counts the quotas that are read.
type memBoard struct {
	left  map[string]int64
	told  []byte
	reads int
	err   error
}

func (b *memBoard) Peek(_ context.Context, quotas []*delivery.Quota) (list []delivery.WindowState, err error) {
	for _, q := range quotas {
		b.reads++
		for i := range q.Windows {
			list = append(list, delivery.WindowState{Quota: q.ID, Window: i, Remaining: b.left[q.ID], ResetAt: 77, FreeAt: 88})
		}
	}
	return list, b.err
}

func (b *memBoard) PublishWindows(_ context.Context, told []byte) error {
	b.told = told
	return b.err
}

func (b *memBoard) PublishedWindows(context.Context) ([]byte, error) { return b.told, b.err }

// TestWindowsAreReadOnceForTheFleet: of 400 quotas, three have traffic. Five daemons know their windows as fast as each would by itself,
// and read few. When the leader is gone, each daemon reads by itself.
func TestWindowsAreReadOnceForTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memBoard{left: map[string]int64{}}
		var quotas []*delivery.Quota
		for i := range 400 {
			q := &delivery.Quota{ID: fmt.Sprint("q", i), Revision: 3, Windows: windows(1000, time.Second, 9000, time.Hour)}
			quotas = append(quotas, q)
			b.left[q.ID] = 1000
		}
		leader := 0
		var fleet []*SharedWindows
		for i := range 5 {
			fleet = append(fleet, NewSharedWindows(b, func() bool { return i == leader }))
		}
		look := func() (seen [][]delivery.WindowState) {
			t.Helper()
			for i := range 3 {
				b.left[fmt.Sprint("q", 100*i)]--
			}
			for _, s := range fleet {
				list, err := s.Peek(t.Context(), quotas)
				if !errors.Is(err, b.err) {
					t.Error(err)
				}
				seen = append(seen, list)
			}
			time.Sleep(gaugesEvery)
			return seen
		}
		for range 10 {
			look()
		}
		b.reads = 0
		const turns = 40
		for range turns {
			for i, seen := range look() {
				if len(seen) != 800 {
					t.Fatalf("daemon %d knows %d windows", i, len(seen))
				}
				for _, w := range seen {
					if busy := w.Quota == "q0" || w.Quota == "q100" || w.Quota == "q200"; busy && w.Remaining != b.left[w.Quota] ||
						w.ResetAt != 77 || w.FreeAt != 88 {
						t.Fatalf("daemon %d: %+v, want %d", i, w, b.left[w.Quota])
					}
				}
			}
		}
		if most := turns * (400/sweepTurns + 5); b.reads > most {
			t.Errorf("%d quotas read in %d turns, want at most %d", b.reads, turns, most)
		}
		b.left["q17"] = 5 // it has traffic again
		for range sweepTurns {
			look()
		}
		for i, seen := range look() {
			if !slices.ContainsFunc(seen, func(w delivery.WindowState) bool { return w.Quota == "q17" && w.Remaining == 5 }) {
				t.Errorf("daemon %d has not noticed traffic", i)
			}
		}
		leader, b.left["q18"] = -1, 6
		for range 4 {
			look()
		}
		for i, seen := range look() {
			if len(seen) != 800 || !slices.ContainsFunc(seen, func(w delivery.WindowState) bool { return w.Quota == "q18" && w.Remaining == 6 }) {
				t.Errorf("daemon %d does not read by itself", i)
			}
		}
		quotas[18] = &delivery.Quota{ID: "q18", Revision: 4, Windows: windows(1, time.Second)}
		leader = 2
		look()
		for i, seen := range look() {
			if len(seen) != 799 {
				t.Errorf("daemon %d knows %d windows after a change", i, len(seen))
			}
		}
		b.told = []byte{2, 200, 1}
		leader = -1
		look() // what cannot be read is not believed
	})
}
