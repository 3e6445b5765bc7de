// Package count counts from outside: a destination that records what arrives, what a stream may look like, and what is left in the broker.
// It uses none of pacer's own metrics. The demo's report and the figures of the test module rest on it.
//
// The computations are pure; instants are durations since an epoch that all of one run share.
package count
