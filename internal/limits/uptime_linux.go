package limits

import "golang.org/x/sys/unix"

// uptime is for how long this machine has been up, in microseconds, the time that it slept included.
func uptime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails for no clock that the kernel has
	return t.Nano() / 1000
}
