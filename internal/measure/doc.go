// Package measure measures streams of jobs from outside. It has a destination that records arrivals, a reader of a sink's record file,
// the expected shape of a stream, and an inventory of a broker. It uses none of pacer's own metrics.
//
// The computations are pure; instants are durations since an epoch that all of one measurement share.
package measure
