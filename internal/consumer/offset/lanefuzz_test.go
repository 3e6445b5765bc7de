package offset

import "testing"

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
