package offset

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/testservices"
)

// The window agrees with a set of open offsets and a set of settled ones, over gaps and restarts.
func TestWindowAgreesWithSets(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		start := rapid.Int64Range(0, 1000).Draw(rt, "start")
		w := restoreWindow(start, nil)
		open, settled, safe, back := map[int64]int64{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
		next := start
		committed, metadata := start, ""
		// end ends an open record in a way, once.
		end := func(rt *rapid.T, way func(*Window, int64) (int64, bool), to map[int64]bool) {
			if len(open) == 0 {
				return
			}
			o := rapid.SampledFrom(slices.Sorted(maps.Keys(open))).Draw(rt, "offset")
			if size, ok := way(w, o); !ok || size != open[o] {
				rt.Fatalf("end %d: %d %t, want %d", o, size, ok, open[o])
			}
			if _, ok := way(w, o); ok {
				rt.Fatalf("%d was ended twice", o)
			}
			delete(open, o)
			to[o] = true
		}
		rt.Repeat(map[string]func(*rapid.T){
			"read": func(rt *rapid.T) {
				gap := next
				o, size := next+rapid.SampledFrom([]int64{0, 0, 0, 1, 3}).Draw(rt, "gap"), rapid.Int64Range(1, 99).Draw(rt, "size")
				for ; gap < o; gap++ {
					settled[gap] = true
				}
				if got := w.Read(o, size); got == safe[o] {
					rt.Fatalf("read %d: %t; settled and committed before: %t", o, got, safe[o])
				} else if got {
					open[o] = size
				} else {
					settled[o] = true
				}
				next = o + 1
			},
			"pass": func(rt *rapid.T) {
				for range rapid.Int64Range(0, 5).Draw(rt, "by") {
					settled[next] = true
					next++
				}
				w.Pass(next)
			},
			"settle": func(rt *rapid.T) {
				end(rt, (*Window).Settle, settled)
			},
			"give back": func(rt *rapid.T) {
				end(rt, (*Window).GiveBack, back)
			},
			"read again": func(rt *rapid.T) {
				o := w.Next()
				if len(back) == 0 {
					return
				}
				if o != slices.Min(slices.Collect(maps.Keys(back))) || w.IsBack(o) || !w.IsBack(o+1) || !w.Read(o, 7) || w.Read(o, 7) {
					rt.Fatalf("%d is not read again, of %v", o, back)
				}
				delete(back, o)
				open[o] = 7
			},
			"commit": func(*rapid.T) {
				committed, metadata = w.base, w.Position().Metadata
				safe = maps.Clone(settled)
			},
			"restart": func(rt *rapid.T) {
				spans, err := decodeSettled(committed, metadata)
				if err != nil {
					rt.Fatalf("decode: %v", err)
				}
				w, next, open, settled = restoreWindow(committed, spans), committed, map[int64]int64{}, maps.Clone(safe)
				clear(back)
			},
			"cut": func(rt *rapid.T) { // it is begun anew in what is left of the log
				at := rapid.Int64Range(max(0, w.base-5), w.next).Draw(rt, "cut at")
				spans, err := decodeSettled(w.base, w.Position().Metadata)
				if err != nil {
					rt.Fatalf("decode: %v", err)
				}
				w, open = restoreWindow(w.base, spans), map[int64]int64{}
				w.Cut(at)
				clear(back)
				maps.DeleteFunc(settled, func(o int64, _ bool) bool { return o >= at })
				next, committed, metadata = w.base, w.base, w.Position().Metadata
				safe = maps.Clone(settled)
			},
			"": func(rt *rapid.T) {
				bytes := int64(0)
				for o, size := range open {
					bytes += size
					if w.base > o {
						rt.Fatalf("base %d is beyond the open offset %d", w.base, o)
					}
				}
				for o := range back {
					if w.base > o {
						rt.Fatalf("base %d is beyond %d, which was given back", w.base, o)
					}
				}
				for o := next; o < w.base; o++ {
					if !safe[o] {
						rt.Fatalf("base %d is beyond %d, which was not read", w.base, o)
					}
				}
				if len(open)+len(back) == 0 && w.base != w.next {
					rt.Fatalf("base %d, next %d, nothing open", w.base, w.next)
				}
				if held, n := w.OpenBytes(), w.Open(); held != bytes || n != len(open) || w.next != max(next, w.base) {
					rt.Fatalf("held %d in %d, next %d; want %d in %d, %d", held, n, w.next, bytes, len(open), next)
				}
			},
		})
	})
}

// The metadata of every commit fits and comes back, even after a restart, for records read while there is room and settled in any order.
// A window has room for thousands of jobs.
func TestSettledMetadataFits(t *testing.T) {
	testservices.Simulation(t)
	rapid.Check(t, func(rt *rapid.T) {
		base := rapid.Int64Range(0, 1<<50).Draw(rt, "base")
		w := restoreWindow(base, nil)
		next, open := base, []int64(nil)
		check := func() {
			p := w.Position()
			if p.Trimmed || len(p.Metadata) > maxMetadata {
				rt.Fatalf("%d characters with %d open, trimmed: %t", len(p.Metadata), w.Open(), p.Trimmed)
			}
			spans, err := decodeSettled(p.Offset, p.Metadata)
			if err != nil || !slices.Equal(spans, w.settled()) {
				rt.Fatalf("%v: got %v, want %v", err, spans, w.settled())
			}
		}
		read := func(o int64) {
			if w.Read(o, 1) {
				open = append(open, o)
			}
			next = w.Next()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"dense": func(rt *rapid.T) { // as much as there is room for
				for n := rapid.IntRange(1, 6000).Draw(rt, "jobs"); n > 0 && w.HasCapacity(MaxOpen, next); n-- {
					read(next)
				}
			},
			"sparse": func(rt *rapid.T) {
				gap := rapid.SampledFrom([]int64{2, 7, 8, 9, 60, 1000, 1 << 30}).Draw(rt, "gap")
				for n := rapid.IntRange(1, 1000).Draw(rt, "jobs"); n > 0 && w.HasCapacity(MaxOpen, next+gap); n-- {
					read(next + gap)
				}
			},
			"settle": func(rt *rapid.T) {
				every, chance := rapid.IntRange(2, 500).Draw(rt, "every"), rapid.IntRange(1, 499).Draw(rt, "chance")
				var left []int64
				for i, o := range open {
					if keep := i == 0 && chance%2 == 0; !keep && i*i%every < chance {
						w.Settle(o)
					} else {
						left = append(left, o)
					}
				}
				open = left
				check()
			},
			"restart": func(rt *rapid.T) {
				p := w.Position()
				var err error
				if w, err = RestoreWindow(p.Offset, p.Metadata); err != nil {
					rt.Fatal(err)
				}
				next, open = w.Next(), nil
			},
		})
	})
	w := restoreWindow(0, nil)
	for w.HasCapacity(MaxOpen, w.Next()) {
		w.Read(w.Next(), 1)
	}
	if w.Open() != MaxOpen {
		t.Errorf("room for %d open jobs, want %d", w.Open(), MaxOpen)
	}
}

// TestRoomBesideWhatIsRestored: of jobs that are read together, those between restored offsets need room as those beyond them do.
func TestRoomBesideWhatIsRestored(t *testing.T) {
	const apart = 16 // each is in a chunk of its own
	w, end := restoreWindow(0, nil), int64(0)
	for ; w.HasCapacity(MaxOpen, end) && end < 4000*apart; end += apart {
		w.Read(end, 1)
	}
	var between []int64
	for o := int64(0); o < end; o += apart {
		if o/apart%2 == 1 {
			w.Settle(o)
		} else {
			between = append(between, o)
		}
	}
	p := w.Position()
	w, err := RestoreWindow(p.Offset, p.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	all := between
	for o := end; len(all) < MaxOpen && w.HasCapacity(MaxOpen, append(all, o)...); o += apart {
		if all = append(all, o); w.Open() == 0 { // what is the only one is always read
			w.Read(all[0], 1)
			all = all[1:]
		}
	}
	for _, o := range all {
		w.Read(o, 1)
	}
	for i, o := range all {
		if i%2 == 1 {
			w.Settle(o)
		}
	}
	if p = w.Position(); p.Trimmed {
		t.Errorf("%d jobs were read, %d of them between restored offsets: the metadata has no room", len(all), len(between))
	}
}

// One open job and any number of settled ones are one run of offsets: they take no memory, and stop nothing.
func TestOneOpenJobStopsNothing(t *testing.T) {
	testservices.Simulation(t)
	w := restoreWindow(0, nil)
	w.Read(0, 1)
	for o := int64(1); o <= 1_000_000; o++ {
		if !w.HasCapacity(MaxOpen, o) {
			t.Fatalf("no room for %d", o)
		}
		w.Read(o, 1)
		w.Settle(o)
	}
	if n := cap(w.reads); n > 10*minSettles {
		t.Errorf("memory for %d offsets", n)
	}
	p := w.Position()
	if p.Offset != 0 || len(p.Metadata) > 20 {
		t.Errorf("commits %+v", p)
	}
	w, err := RestoreWindow(p.Offset, p.Metadata)
	if err != nil || !w.Read(0, 1) || w.Read(1, 1) || w.Read(1_000_000, 1) || !w.Read(1_000_001, 1) {
		t.Errorf("restored from %+v: %v", p, err)
	}
}

// A gap costs neither memory nor time, however many jobs are open.
func TestGapIsFree(t *testing.T) {
	allocated := testing.AllocsPerRun(1, func() {
		w := restoreWindow(0, nil)
		for o := range int64(1000) {
			w.Read(o, 1)
		}
		for o := int64(1); o < 1000; o += 2 {
			w.Settle(o)
		}
		w.Pass(1 << 40)
		w.Read(1<<41, 1)
		if p := w.Position(); p.Trimmed || w.Open() != 501 {
			t.Errorf("%d open, commits %+v", w.Open(), p)
		}
	})
	if allocated > 100 {
		t.Errorf("%v allocations", allocated)
	}
}

// Metadata that has no room for all that is settled leaves out what lies farthest.
func TestSettledMetadataTrimmed(t *testing.T) {
	w := restoreWindow(0, nil)
	for o := range int64(100_000) {
		w.Read(o, 1)
	}
	for o := int64(1); o < 100_000; o += 2 {
		w.Settle(o)
	}
	p := w.Position()
	spans, err := decodeSettled(p.Offset, p.Metadata)
	if err != nil || !p.Trimmed || len(p.Metadata) > maxMetadata || len(spans) < 6000 || !slices.Equal(spans, w.settled()[:len(spans)]) {
		t.Errorf("%d spans in %d characters, trimmed %t: %v", len(spans), len(p.Metadata), p.Trimmed, err)
	}
}

// TestForeignMetadata: metadata of others, of another kind or offset, and what is damaged, is read neither as a window's nor as a lane's.
func TestForeignMetadata(t *testing.T) {
	window, _ := encodeSettled(100, []span{{102, 105}})
	committed, lane, _ := encodeLane(lanePositions{main: 150, entries: []laneEntry{{hash: 1, low: 100, settledTo: 100}}})
	raw, err := base64.RawStdEncoding.DecodeString(window)
	if err != nil || committed != 100 {
		t.Fatal(err, committed)
	}
	raw[len(raw)-1] ^= 1
	laneBody, _ := unframe(100, kindLane, lane)
	type readable struct{ window, lane bool }
	for name, c := range map[string]struct {
		base     int64
		metadata string
		readable
	}{
		"none":           {100, "", readable{true, true}},
		"a window's":     {100, window, readable{window: true}},
		"a lane's":       {100, lane, readable{lane: true}},
		"not ours":       {100, "consumer-host-17", readable{}},
		"not base64":     {100, "ünïcode", readable{}},
		"other offset":   {101, window, readable{}},
		"of a lane's":    {101, lane, readable{}},
		"cut":            {100, lane[:len(lane)-2], readable{}},
		"bit flipped":    {100, base64.RawStdEncoding.EncodeToString(raw), readable{}},
		"another kind":   {100, frame(100, kindLane+1, laneBody), readable{}},
		"run too long":   {100, frame(100, kindWindow, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}), readable{}},
		"chunks missing": {100, frame(100, kindWindow, []byte{1, 3, 0xff}), readable{}},
		"longer than ok": {100, string(make([]byte, maxMetadata+1)), readable{}},
	} {
		spans, err := decodeSettled(c.base, c.metadata)
		if c.window != (err == nil) || !c.window && (!errors.Is(err, errForeignMetadata) || spans != nil) {
			t.Errorf("%s, read as a window's: %v, %v", name, spans, err)
		}
		if p, err := decodeLane(c.base, c.metadata); c.lane != (err == nil) || !c.lane && (len(p.entries) > 0 || p.main != c.base) {
			t.Errorf("%s, read as a lane's: %+v, %v", name, p, err)
		}
		if l, err := RestoreLane(c.base, c.metadata); c.lane != (err == nil) || c.lane != (l != nil) {
			t.Errorf("%s: restored %+v, %v", name, l, err)
		}
		for lane, can := range map[bool]bool{false: c.window, true: c.lane} {
			open, err := Unsettled(lane, c.base, c.metadata)
			if can != (err == nil) || c.metadata == "" && (open("a", 99) || !open("a", 100)) {
				t.Errorf("%s, what is open, of a lane %t: %v", name, lane, err)
			}
		}
	}
	other := []byte{metadataVersion + 1, kindWindow, 1}
	later := base64.RawStdEncoding.EncodeToString(binary.BigEndian.AppendUint32(other, frameSum(100, other)))
	spans, err := decodeSettled(100, later)
	_, laneErr := decodeLane(100, later)
	for _, err := range []error{err, laneErr} {
		if err == nil || !strings.Contains(err.Error(), "version 2") || spans != nil {
			t.Errorf("another version: %v, %v", spans, err)
		}
	}
}

// Bytes from outside never panic and never cost more memory than they are worth. Those of lanes: FuzzLaneMetadata.
func FuzzMetadata(f *testing.F) {
	f.Add(int64(100), []byte{0, 2, 0x40, 0xff, 9, 1, 3})
	f.Fuzz(func(t *testing.T, base int64, body []byte) {
		base &= 1<<50 - 1
		if spans, err := decodeSettled(base, frame(base, kindWindow, body)); err == nil {
			if len(spans) > 4*len(body) {
				t.Fatalf("%d spans of %d bytes", len(spans), len(body))
			}
			restoreWindow(base, spans).Position()
		}
	})
}

// FuzzLaneMetadata: metadata of a lane's commit, whole or damaged, never panics. Use of a lane restored from it does not panic either,
// and that lane's commit is read back the same.
func FuzzLaneMetadata(f *testing.F) {
	f.Add(int64(7), "AQIhA40MFJRw1E+UAA4HC015ENglkAwJCBf823P6DqE6sw0CAAAFAP+66nrMPgh/", []byte{5})
	f.Add(int64(0), "", []byte{1, 2, 3})
	f.Add(int64(1000), "AQEAAwwE8PQCSPXwWQ", []byte{})
	f.Fuzz(func(t *testing.T, base int64, metadata string, steps []byte) {
		base &= 1<<50 - 1
		for _, kind := range []byte{kindLane, 0} {
			text := metadata
			if kind != 0 {
				text = frame(base, kind, []byte(metadata))
			}
			l, err := RestoreLane(base, text)
			if err != nil {
				continue
			}
			if len(l.campaigns) > maxLaneCampaigns {
				t.Fatalf("%d campaigns", len(l.campaigns))
			}
			for i, b := range steps[:min(len(steps), 50)] {
				hash, at := uint64(b%5), l.Main()+int64(i)
				if l.ClassifyMain(hash, at) == HandOver {
					l.Add(hash, Record{Offset: at, Size: 1, Weight: 1})
				}
				l.Pass(at + 1)
				if b%2 == 0 {
					l.Settle(at)
				}
			}
			p := l.Position()
			again, err := RestoreLane(p.Offset, p.Metadata)
			if err != nil || len(p.Metadata) > 4096 || again.Committed() != l.Committed() && !p.Trimmed {
				t.Fatalf("%+v is read as %+v, %v", p, again, err)
			}
		}
	})
}
