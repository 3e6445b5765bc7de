// Package keyed keeps quotas by a key of the job: so many jobs to a recipient, a chat, a customer. Jobs are read with a Checker, which reserves
// the turns of those that have to wait, and are sent through it, which counts them. The counts are in Redis, spread over the shards by a hash of
// quota and value.
package keyed
