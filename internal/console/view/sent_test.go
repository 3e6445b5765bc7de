package view

import (
	"testing"
	"time"
)

// TestWhatIsSent: nothing by a campaign that rests; of one that has just begun to send, it is not known yet.
func TestWhatIsSent(t *testing.T) {
	fleet := func(at int64, sent map[string]int64) *Fleet {
		return &Fleet{At: time.Unix(at, 0), Counter: "leader", Sent: func(campaign string) (units int64, ok bool) {
			units, ok = sent[campaign]
			return units, ok
		}}
	}
	e := &evidence{fleet: fleet(10, map[string]int64{"goes on": 300, "begins": 20}), earlier: fleet(5, map[string]int64{"goes on": 200, "rests": 50})}
	if is := e.sent("begins"); is != nil {
		t.Errorf("%v/s by one that begins", *is)
	}
	for id, want := range map[string]float64{"goes on": 20, "rests": 0, "never sent": 0} {
		if is := e.sent(id); is == nil || *is != want {
			t.Errorf("%v by one that %s", is, id)
		}
	}
}
