// Package retry is for loops that call a service again after a failure. It has backoff delays, waits that can be woken, and outages that
// are logged once at their begin and once at their end.
package retry
