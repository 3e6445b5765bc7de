package pacer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTimeHeapAgreesWithAMap: after any sequence of changes the earliest is first, and every item knows its position.
func TestTimeHeapAgreesWithAMap(t *testing.T) {
	type item struct{ id, index int }
	rapid.Check(t, func(t *rapid.T) {
		h := timeHeap[*item]{index: func(i *item) *int { return &i.index }}
		items := make([]*item, 20)
		for i := range items {
			items[i] = &item{i, -1}
		}
		at := map[*item]int64{}
		earliest := func() int64 {
			var all []int64
			for _, v := range at {
				all = append(all, v)
			}
			return slices.Min(all)
		}
		it := rapid.SampledFrom(items)
		when := rapid.Int64Range(0, 30)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				i, v := it.Draw(t, "item"), when.Draw(t, "at")
				h.set(i, v)
				at[i] = v
			},
			"remove": func(t *rapid.T) {
				i := it.Draw(t, "item")
				h.remove(i)
				delete(at, i)
			},
			"pop": func(t *rapid.T) {
				if h.len() == 0 {
					t.Skip("empty")
				}
				want := earliest()
				if i := h.pop(); at[i] != want || i.index != -1 {
					t.Fatalf("popped %d at %d (index %d), want one at %d", i.id, at[i], i.index, want)
				} else {
					delete(at, i)
				}
			},
			"": func(t *rapid.T) {
				if h.len() != len(at) {
					t.Fatalf("%d items, want %d", h.len(), len(at))
				}
				for i := range at {
					if h.entries[i.index].item != i || h.entries[i.index].at != at[i] {
						t.Fatalf("item %d does not know where it is", i.id)
					}
				}
				if h.len() > 0 && h.first().at != earliest() {
					t.Fatalf("first at %d, want %d", h.first().at, earliest())
				}
			},
		})
	})
}
