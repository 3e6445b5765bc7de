package keyed

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// TestTheBusiestKeysAreFound among any number of others, in bounded memory, and are forgotten.
func TestTheBusiestKeysAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(prometheus.NewRegistry())
		quota := &delivery.Quota{ID: "chat"}
		refuse := func(value string) { w.tell(&check{quota: quota, value: value}, 10*time.Second, false) }
		for i := range 10_000 {
			refuse(fmt.Sprint("other-", i))
			if i%4 == 0 {
				refuse("busy")
			}
			if i%10 == 0 {
				refuse("second")
			}
		}
		if n := len(w.of["chat"].busy); n > maxCounted {
			t.Errorf("%d keys are counted", n)
		}
		list := w.list(time.Now())
		if len(list) != 1 || list[0].Quota != "chat" || list[0].Waiting != 13_500 {
			t.Fatalf("%+v", list)
		}
		if b := list[0].Busiest; len(b) < 2 || b[0].Key != "busy" || b[1].Key != "second" || b[0].Jobs <= b[1].Jobs {
			t.Errorf("%+v", b)
		}
		time.Sleep(11 * time.Second)
		if list = w.list(time.Now()); len(list) != 1 || list[0].Waiting != 0 || list[0].Busiest[0].Key != "busy" {
			t.Errorf("after the turns: %+v", list)
		}
		for range 20 {
			time.Sleep(decay)
			list = w.list(time.Now())
		}
		if len(list) > 0 || len(w.of) > 0 {
			t.Errorf("after twenty minutes: %+v", list)
		}
	})
}
