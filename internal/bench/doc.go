// Package bench measures pacer from outside: it runs daemons as processes on real services, lets them send to its own
// receivers, and compares what arrived with bounds.
package bench
