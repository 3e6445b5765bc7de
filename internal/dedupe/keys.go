package dedupe

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/pacer/pacer/internal/shards"
)

// id is half a SHA-256 of a campaign and a job's id in its scope (delivery.Job.Scope). Its length does not depend on the producers' ids.
// A collision takes as much work as breaking a 128-bit hash, also for a malicious producer.
type id [16]byte

func idOf(campaign, job, scope string) id {
	var buf [3*256 + 2]byte // ids have at most 256 characters
	text := append(buf[:0], campaign...)
	text = append(text, ' ') // not allowed in ids
	text = append(text, job...)
	if scope != "" {
		text = append(append(text, ' '), scope...)
	}
	sum := sha256.Sum256(text)
	return id(sum[:16])
}

// shard returns the shard of the job's key.
func (i id) shard(count int) int { return shards.Of(binary.BigEndian.Uint64(i[:8]), count) }

// tag returns the beginning of all keys of a shard.
func tag(prefix string, shard int) string { return shards.Tag(prefix, shard) + "job:" }

// key returns the key of the job in a shard.
func (i id) key(tag string) string { return tag + base64.RawURLEncoding.EncodeToString(i[:]) }
