package dedupe

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// id stands for a campaign and a job's id in it: half a SHA-256, of a constant length whatever ids producers choose. To
// make two jobs meet takes as much work as to break a hash of 128 bits, also for a producer who wants to.
type id [16]byte

func idOf(campaign, job string) id {
	var buf [2*256 + 1]byte // ids have at most 256 characters
	text := append(buf[:0], campaign...)
	text = append(text, ' ') // in no id
	sum := sha256.Sum256(append(text, job...))
	return id(sum[:16])
}

// shard is where the job's key lives.
func (i id) shard(shards int) int { return int(binary.BigEndian.Uint64(i[:8]) % uint64(shards)) }

// tag begins all keys of a shard: the hash tag that the quota engine's keys of this shard have, too, so that a script may
// touch many of them on a Redis Cluster.
func tag(prefix string, shard int) string { return "{" + prefix + strconv.Itoa(shard) + "}job:" }

// key names the job in a shard.
func (i id) key(tag string) string { return tag + base64.RawURLEncoding.EncodeToString(i[:]) }
