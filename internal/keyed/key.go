package keyed

import (
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
)

//go:embed lua/key.lua
var sources embed.FS

var script = shards.NewScript(sources, "lua/key.lua")

// base is the beginning of the script's time, in milliseconds since 1970.
const base = 1_735_689_600_000

// ahead returns how many milliseconds of the future a time is; the store's clock may be another one.
func ahead(t, now time.Time) int64 { return max(0, t.Sub(now).Milliseconds()) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forever is a wait that does not end, in milliseconds.
const forever = int64(1) << 52

// id is 96 bits of a SHA-256 of a quota and a value of its key: it is short, since there may be millions, and no producer finds two that collide.
type id [12]byte

func idOf(quota, value string) id {
	sum := sha256.Sum256(append(append([]byte(quota), ' '), value...)) // ids have no spaces
	return id(sum[:12])
}

func (i id) shard(count int) int { return shards.Of(binary.BigEndian.Uint64(i[:8]), count) }

// hashBits give the number of hashes in a shard. Of a million values, a hash has four. Of a hundred million it has 400, which Redis still packs.
const hashBits = 18

// hash returns the key of the hash in its shard that has the value.
func (i id) hash(prefix string, shard int) string {
	n := binary.BigEndian.Uint32(i[8:]) & (1<<hashBits - 1)
	return shards.Tag(prefix, shard) + "k:" + string([]byte{byte(n >> 16), byte(n >> 8), byte(n)})
}

// spelled is the key of the hash as redis-cli reads it between double quotes.
func (i id) spelled(prefix string, shard int) string {
	key := i.hash(prefix, shard)
	bits := len(key) - 3
	return fmt.Sprintf(`%s\x%02x\x%02x\x%02x`, key[:bits], key[bits], key[bits+1], key[bits+2])
}

// field returns the field of its hash.
func (i id) field() string { return string(i[:10]) }

// asked is what the script is asked, but for times.
func asked(what string, units int64, turned bool, spec string) string {
	b := strconv.AppendInt(append(make([]byte, 0, 64), what+","...), units, 10)
	if turned {
		return string(append(b, ",1,"...)) + spec
	}
	return string(append(b, ",0,"...)) + spec
}

// widened is the span of a window and its margin.
func widened(w delivery.Window) time.Duration { return w.Span + delivery.KeyMargin(w.Span) }

// spec returns the windows as the script reads them, for a time and the recipient's zone (nil: not known). Nothing that is counted now may be sent
// after ends: then the first of the calendars' periods ends, or an hour has passed.
func spec(windows []delivery.Window, now time.Time, zone *time.Location) (text string, ends time.Time) {
	b := make([]byte, 0, 48)
	ends = now.Add(time.Hour)
	for _, w := range windows {
		span, begin, end := widened(w), int64(0), int64(0)
		if w.Algorithm == delivery.AlgorithmFixed {
			begin = -1
		}
		anchor := w.Anchor
		if unit, ok := strings.CutSuffix(anchor, model.AtRecipient); ok && zone != nil {
			anchor = unit + "@" + zone.String()
		}
		if a, err := model.ParseAnchor(anchor); err == nil && anchor != "" {
			p := a.Period(now.UnixMicro())
			begin, end = p[0]/1000-base, p[1]/1000-base
			ends = earlier(ends, time.UnixMicro(p[1]))
		}
		for _, n := range [...]int64{w.Limit, span.Milliseconds(), begin, end} {
			b = append(strconv.AppendInt(b, n, 10), ',')
		}
	}
	return string(b), ends
}

// lightest is the lowest limit of the windows: no heavier job may ever be sent.
func lightest(windows []delivery.Window) int64 {
	least := int64(delivery.MaxGrant)
	for _, w := range windows {
		least = min(least, w.Limit)
	}
	return least
}
