// Package dedupe keeps a ledger of delivered jobs in Redis, so that a job that is read again, or published again with
// the same id, is not sent again for a time. It stands between the pacer and the sinks: see Ledger. People cancel single jobs in it: see
// Desk.
package dedupe
