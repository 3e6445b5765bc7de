package model

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func TestWindowsThatNeverDecide(t *testing.T) {
	window := func(limit int64, span time.Duration, algorithm string) delivery.Window {
		return delivery.Window{Limit: limit, Span: span, Algorithm: algorithm}
	}
	const sliding, fixed, log = delivery.AlgorithmSliding, delivery.AlgorithmFixed, delivery.AlgorithmLog
	for name, tt := range map[string]struct {
		short, long delivery.Window
		want        bool
	}{
		"the longer is tighter":                     {window(100, time.Minute, sliding), window(50, time.Hour, sliding), true},
		"as many in a longer time":                  {window(100, time.Minute, log), window(100, time.Hour, sliding), true},
		"more in a longer time":                     {window(100, time.Minute, sliding), window(101, time.Hour, sliding), false},
		"two fixed ones meet in a minute":           {window(100, time.Minute, sliding), window(51, time.Hour, fixed), false},
		"even two fixed ones are tighter":           {window(100, time.Minute, sliding), window(50, time.Hour, fixed), true},
		"three months may meet in thirty days":      {window(100, 30*24*time.Hour, sliding), window(50, 31*24*time.Hour, fixed), false},
		"a limit of 0, which grants nothing so far": {window(100, time.Minute, sliding), window(0, time.Hour, sliding), false},
		"of one span":                               {window(100, time.Minute, sliding), window(50, time.Minute, sliding), false},
	} {
		for _, windows := range [][]delivery.Window{{tt.short, tt.long}, {tt.long, tt.short}} {
			idle, by, found := Idle(windows)
			if found != tt.want || found && (idle != tt.short || by != tt.long) {
				t.Errorf("%s: %+v by %+v, %t", name, idle, by, found)
			}
		}
	}
}
