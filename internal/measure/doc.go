// Package measure measures streams of jobs from outside: a destination that records what arrives and when, a reader of
// a sink's record file, the shape of a stream, the rate it should have had, and what a broker still holds. It uses
// none of pacer's own metrics.
//
// The computations are pure; instants are durations since an epoch that all of one measurement share.
package measure
