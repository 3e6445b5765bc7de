//go:build !linux

package limits

import "time"

var began = time.Now()

// uptime is for how long this process has been running, in microseconds.
func uptime() int64 { return time.Since(began).Microseconds() }
