// Package bench measures pacer from outside: it runs daemons as processes, and computes what a stream of jobs looked
// like from what its receiver wrote down. Everything that computes is pure, and takes instants as durations since an
// epoch that all of one measurement share.
package bench
