package command

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHowFarOffATimeIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for off, want := range map[time.Duration]string{
			0: "(now)", 400 * time.Millisecond: "(now)", -400 * time.Millisecond: "(now)", 3 * time.Second: "(in 3s)", -time.Minute: "(1m0s ago)",
		} {
			at := time.Now().Add(off)
			if got := agoOrAhead(&at); !strings.HasSuffix(got, want) {
				t.Errorf("%s off: %q, want %q", off, got, want)
			}
		}
		if got := agoOrAhead(nil); got != "not known" {
			t.Errorf("%q", got)
		}
	})
}
