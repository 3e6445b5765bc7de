// Package keyed keeps quotas by a key of the job: so many jobs to a recipient, a chat, a customer. A Checker reserves the
// turns of those that have to wait, and counts those that are sent, which pass through it. The counts are in Redis, spread over the shards by a hash of
// quota and value.
package keyed
