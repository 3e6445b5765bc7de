package app

import (
	"testing"
	"time"
)

// The watchdog takes an offer that does not return for a stuck handler: while results are refused, offers must return
// well before that.
func TestOffersReturnBeforeTheWatchdogMinds(t *testing.T) {
	t.Parallel()
	st, err := newStage(newScene(time.Minute), &DemoOptions{}, discardLog())
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	for watchdog, want := range map[time.Duration]time.Duration{15 * time.Second: 7500 * time.Millisecond, 0: admitWithin} {
		parts, err := st.parts(&DemoOptions{}, "", discardLog())
		if err != nil {
			t.Fatal(err)
		}
		parts.Topics.Results, parts.Watchdog = true, watchdog
		d, err := NewDaemon(parts)
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := d.handler().(reporting); !ok || h.patience != want {
			t.Errorf("watchdog %s: offers wait for %s, want %s", watchdog, h.patience, want)
		}
	}
}
