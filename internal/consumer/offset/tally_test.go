package offset

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestTally: a reader and a survey that runs ahead of it count each record once, in any order of their steps. The log may have gaps, the last
// owner may have settled records, and jobs may be given back and read again. What the log has lost does not count for ever.
func TestTally(t *testing.T) {
	type state uint8
	const (
		none state = iota // a gap
		unread
		open
		back
		settled
	)
	type record struct {
		state
		seen Seen
	}
	rapid.Check(t, func(rt *rapid.T) {
		const base = 100
		n := rapid.IntRange(1, 40).Draw(rt, "records")
		log, restored := make([]record, n), []span{}
		for i := range log {
			r := &log[i]
			r.seen = Seen{
				Offset: base + int64(i), Campaign: rapid.Uint64Range(1, 3).Draw(rt, "campaign"), Retrying: rapid.Bool().Draw(rt, "retrying"),
				Due: rapid.Int64Range(0, 5).Draw(rt, "due"), Destination: rapid.SampledFrom([]string{"", "shop", "cafe"}).Draw(rt, "destination"),
			}
			r.state = rapid.SampledFrom([]state{none, unread, unread, unread, settled}).Draw(rt, "state")
			if i == 0 && r.state == settled {
				r.state = unread // else the last owner had committed beyond it
			}
			if at := r.seen.Offset; r.state == settled {
				restored = append(restored, span{at, at})
			}
		}
		w, tally := restoreWindow(base, restored), NewTally(base)
		reader := func() {
			for i := range log {
				r := &log[i]
				if r.seen.Offset < w.Next() || r.state == none || r.state == open {
					continue
				}
				again := r.seen.Offset < w.End()
				if fresh := w.Read(r.seen.Offset, 1); fresh && !again {
					tally.Read(r.seen)
				} else if fresh != again {
					rt.Fatalf("offset %d: fresh is %t", r.seen.Offset, fresh)
				}
				if r.state != settled {
					r.state = open
				}
				tally.Pass(w.End())
				return
			}
		}
		survey := func(most int) {
			for i := range log {
				r := &log[i]
				switch at := r.seen.Offset; {
				case at < tally.Next() || r.state == none || most == 0:
				case w.Restored(at):
					tally.Pass(at + 1)
					most--
				default:
					tally.Ahead(r.seen)
					most--
				}
			}
		}
		for range rapid.IntRange(0, 3*n).Draw(rt, "steps") {
			i := rapid.IntRange(0, n-1).Draw(rt, "at")
			switch r := &log[i]; rapid.SampledFrom([]string{"read", "read", "survey", "settle", "give back"}).Draw(rt, "step") {
			case "read":
				reader()
			case "survey":
				survey(rapid.IntRange(1, 10).Draw(rt, "most"))
			case "settle":
				if _, ok := w.Settle(r.seen.Offset); ok {
					tally.Settle(r.seen.Offset, r.seen.Campaign, r.seen.Destination)
					r.state = settled
				}
			case "give back":
				if _, ok := w.GiveBack(r.seen.Offset); ok {
					r.state = back
				}
			}
		}
		survey(n)
		want, to := map[uint64]delivery.CampaignCount{}, map[string]int64{}
		for _, r := range log {
			c := want[r.seen.Campaign]
			if r.seen.Destination != "" && (r.state == unread || r.state == open || r.state == back) {
				to[r.seen.Destination]++
			}
			c.Campaign = r.seen.Campaign
			switch r.state {
			case unread:
				c.Jobs++
				c.Unread++
				c.Due = max(c.Due, r.seen.Due)
				if r.seen.Retrying {
					c.Retrying++
				}
			case open, back:
				c.Jobs++
			}
			want[r.seen.Campaign] = c
		}
		counted := map[uint64]delivery.CampaignCount{}
		for c := range tally.Counts(w.Committed()) {
			counted[c.Campaign] = c
		}
		for campaign, w := range want {
			got := counted[campaign]
			if got.Jobs != w.Jobs || got.Unread != w.Unread || got.Retrying != w.Retrying || got.Due < w.Due || (got.Due > 0) != (w.Due > 0) && w.Unread == 0 {
				rt.Fatalf("campaign %d: %+v, want %+v", campaign, got, w)
			}
		}
		if got := tally.Destinations(); !maps.Equal(got, to) {
			rt.Fatalf("%v by destination, want %v", got, to)
		}
		w.Raise(base + int64(n)) // the log has lost them all
		tally.Pass(w.End())
		for i := range log {
			w.Settle(log[i].seen.Offset)
		}
		for c := range tally.Counts(w.Committed()) {
			rt.Fatalf("%+v of an empty log", c)
		}
		if got := tally.Destinations(); len(got) > 0 {
			rt.Fatalf("%v of an empty log", got)
		}
	})
}
