package requeue

import "time"

// maxHold bounds one pause of writing to lanes.
const maxHold = 200 * time.Millisecond

// brake pauses writing to lanes while sending is behind. A pause lasts at most maxHold, and after it lanes have
// as long a time to themselves: a machine that is always behind would otherwise never empty its front windows,
// and the busy campaigns behind them would starve. The zero brake is open.
type brake struct {
	from, until time.Time // of the last pause
}

// hold pauses until now+d, within the bounds.
func (b *brake) hold(now time.Time, d time.Duration) {
	if d <= 0 {
		return
	}
	if !now.Before(b.until) { // not paused
		if now.Before(b.until.Add(b.until.Sub(b.from))) {
			return
		}
		b.from, b.until = now, now
	}
	end := now.Add(d)
	if last := b.from.Add(maxHold); end.After(last) {
		end = last
	}
	if end.After(b.until) {
		b.until = end
	}
}
