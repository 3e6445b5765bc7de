package limits

import (
	"strconv"

	"github.com/pacer/pacer/internal/shards"
)

// keys names everything the engine keeps in one shard of Redis. All of a shard's keys carry one hash tag, so that a
// script may touch them together on a Redis Cluster.
type keys struct{ tag string }

func newKeys(prefix string, shard int) keys { return keys{tag: shards.Tag(prefix, shard)} }

// clock is the latest time the shard gave out, and the epoch of its data. Keyed quotas read the latter.
func (k keys) clock() string { return k.tag + shards.ClockKey }

// reply holds the latest reply of one of a node's script slots.
func (k keys) reply(node string, slot int) string {
	return k.tag + "reply:" + node + ":" + strconv.Itoa(slot)
}

// timeline holds a campaign's slots.
func (k keys) timeline(campaign string) string { return k.tag + "timeline:" + campaign }

// quota holds a quota's windows and the campaigns that compete for them.
func (k keys) quota(id string) string { return k.tag + "quota:" + id }

// gate holds until when a destination is closed.
func (k keys) gate(id string) string { return k.tag + "gate:" + id }

// shut holds until when destinations are closed, and shutChanges when that was changed last. They are in one shard.
func (k keys) shut() string { return k.tag + "destinations" }

func (k keys) shutChanges() string { return k.tag + "destinations:changes" }
