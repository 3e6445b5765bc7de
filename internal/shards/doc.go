// Package shards connects to Redis. It divides the keys among shards, maps shards to servers, builds the keys of a
// shard, and runs scripts.
package shards
