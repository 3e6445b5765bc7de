package model

import (
	"github.com/pacer/pacer/internal/delivery"
)

// Idle returns a window that never decides anything, and the longer window that makes it idle. The longer one grants less in all of its
// span than the shorter one in its own. A limit of 0 is left out: it is meant to grant nothing for a while.
func Idle(windows []delivery.Window) (idle, by delivery.Window, found bool) {
	for _, idle = range windows {
		for _, by = range windows {
			if by.Limit > 0 && by.Span > idle.Span && covers(&by, &idle) {
				return idle, by, true
			}
		}
	}
	return delivery.Window{}, delivery.Window{}, false
}

// covers reports whether a window lets through no more in any span of a shorter one than that does. A span can lie across the border of two
// fixed windows, and then holds the units of both. Those of the calendar may be shorter than their span says.
func covers(long, short *delivery.Window) bool {
	if long.Algorithm != delivery.AlgorithmFixed {
		return long.Limit <= short.Limit
	}
	return 2*long.Limit <= short.Limit && 2*short.Span <= long.Span
}
