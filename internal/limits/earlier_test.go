package limits

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// TestAWindowOfAnEarlierReleaseGoesOn: what it has counted counts until it leaves, whichever script comes first. A release that reads
// buckets by another step finds more windows than there are, and so reads none.
func TestAWindowOfAnEarlierReleaseGoesOn(t *testing.T) {
	harness.Simulation(t)
	for name, first := range map[string]func(l *lua, now int64, q *delivery.Quota){
		"take": func(*lua, int64, *delivery.Quota) {},
		"peek": func(l *lua, now int64, q *delivery.Quota) {
			if left := l.Peek(now, []*delivery.Quota{q})[0].Remaining; left != 30 {
				t.Errorf("%d are left of 30", left)
			}
		},
		"refund": func(l *lua, now int64, q *delivery.Quota) {
			c := campaign(1000, q)
			back := delivery.Grant{Units: 20, GrantedAt: now - 4*second, From: delivery.Provenance{Campaign: c}}
			l.Refund(now, []delivery.Grant{back})
			back.GrantedAt -= 30 * second // nothing was granted then
			l.Refund(now, []delivery.Grant{back})
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := realClient(t)
			l := newLua(t, client)
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(100, time.Minute)}
			c := campaign(1000, q)
			now := settle(l, epoch, c)
			step := (60*second + 59) / 60 // of that release
			newest := now/step - 4
			list := put(put(nil, 1, 0), 3, 50)
			value := put(put(nil, 7, 0, 1), 1, 0, 1, 0)
			value = put(put(put(value, 1, 1), 6, 60*second), 7, 100)
			value = put(put(put(value, 4, horizon+late), 7, 70, newest), 5, 20)
			value = put(put(put(value, 7, newest-10, newest-10, 0), 5, 0), 3, int64(len(list)))
			must(t, client.Set(t.Context(), newKeys(l.prefix, 0).quota("q"), append(value, list...), 0).Err())
			first(l, now, q)
			back := int64(0)
			if name == "refund" {
				back = 20
			}
			if g := take1(l, now, "a", ask(c, 1000)); g.Units > 30+back {
				t.Fatalf("%d units while 70 of 100 are counted, of which %d were handed back", g.Units, back)
			}
			var units int64
			for at := now; at < now+46*second; at += quantum {
				units += take1(l, at, "a", ask(c, 1000)).Units
			}
			if units > 30+back {
				t.Errorf("%d units before those counted have left", units)
			}
			now += 49 * second
			if g := take1(l, now, "a", ask(c, 1000)); g.Windows[0].Remaining+g.Units < 50 {
				t.Errorf("after the 50 have left: %+v", g)
			}
			raw, err := client.Get(t.Context(), newKeys(l.prefix, 0).quota("q")).Bytes()
			must(t, err)
			if raw[15] != 129 {
				t.Errorf("%d windows", raw[15])
			}
		})
	}
}
