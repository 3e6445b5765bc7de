// Package keyed keeps quotas by a key of the job: so many jobs to a recipient, a chat, a customer. A Checker counts the
// jobs that it sends, and reserves turns for those that have to wait. The counts are in Redis, spread over the shards by a hash of
// quota and value.
package keyed
