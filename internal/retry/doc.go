// Package retry has what every component needs that works in a loop and calls a service again after a failure: how long
// to wait, how to wait and be woken, and how to say once that the service fails and once that it works again.
package retry
