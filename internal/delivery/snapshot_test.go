package delivery

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestChangedFindsEveryDifference: between any two snapshots, whether or not the later one remembers the earlier.
func TestChangedFindsEveryDifference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := []*Snapshot{{Campaigns: map[string]*Campaign{}}}
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			changed := map[string]*Campaign{}
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, 30), 0, 5).Draw(rt, "ids") {
				id := strconv.Itoa(n)
				if changed[id] = nil; rapid.Bool().Draw(rt, "there") {
					changed[id] = &Campaign{ID: id}
				}
			}
			history = append(history, history[len(history)-1].Next(changed))
		}
		last := history[len(history)-1]
		for _, since := range history {
			found := slices.Collect(last.Changed(since))
			for _, s := range []*Snapshot{last, since} {
				for id := range s.Campaigns {
					if last.Campaigns[id] != since.Campaigns[id] && !slices.Contains(found, id) {
						rt.Fatalf("%s differs, found %v", id, found)
					}
				}
			}
		}
		if same := *last; len(slices.Collect(same.Changed(last))) > 0 {
			rt.Fatal("a copy differs")
		}
	})
}

// TestWhatASnapshotRemembersIsBounded: and the last changes of a large catalog are found without looking at all of it.
func TestWhatASnapshotRemembersIsBounded(t *testing.T) {
	all := map[string]*Campaign{}
	for i := range 10_000 {
		all[strconv.Itoa(i)] = &Campaign{ID: strconv.Itoa(i)}
	}
	s := (&Snapshot{}).Next(all)
	for i := range 3 * maxHistory {
		before := s
		s = s.Next(map[string]*Campaign{strconv.Itoa(i): {}})
		if got := slices.Collect(s.Changed(before)); !slices.Equal(got, []string{strconv.Itoa(i)}) {
			t.Fatalf("changed %v", got)
		}
	}
	if len(s.changes) != maxHistory {
		t.Errorf("%d steps are remembered", len(s.changes))
	}
	before := s
	s = s.Next(maps.Clone(s.Campaigns))
	if len(s.changes) != 0 {
		t.Errorf("%d steps are remembered beside one of all campaigns", len(s.changes))
	}
	if n := len(slices.Collect(s.Changed(before))); n != 0 {
		t.Errorf("%d differ", n)
	}
}

// TestWithoutSharedQuotasTheCatalogIsLoaded: a list without quotas is empty, and nil says that there is no snapshot. A store that has lost its
// data is rebuilt from the former, and waits for the latter.
func TestWithoutSharedQuotasTheCatalogIsLoaded(t *testing.T) {
	keyed := Snapshot{Quotas: map[string]*Quota{"chat": {ID: "chat", Per: "chat"}}}
	if list := keyed.Shared(); list == nil || len(list) != 0 {
		t.Errorf("%v", list)
	}
	if list := (*Snapshot)(nil).Shared(); list != nil {
		t.Errorf("%v", list)
	}
}
