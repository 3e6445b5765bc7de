//go:build e2e

package test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/test/recording"
)

// keyRows are the figures of `make keys`, in the order of the table.
var keyRows = []speedRow{
	{name: "zipf-rate", what: "100,000 keys, Zipf, 1/1s and 3/1m, 3 daemons: a campaign while enough keys are free", unit: "/s", yardstick: "its rate", bound: 0.98},
	{name: "zipf-plain", what: "a campaign without keys beside it", unit: "/s", yardstick: "its rate", bound: 0.99},
	{name: "zipf-second", what: "most of a key's limit of a second in any second", unit: "%", bound: 100, atMost: true},
	{name: "zipf-minute", what: "most of a key's limit of a minute in any minute", unit: "%", bound: 100, atMost: true},
	{name: "stream-late", what: "900/s of such keys: the slowest 1 % of free keys, later than without keys by", unit: "ms", bound: 100, atMost: true},
	{name: "busy-others", what: "half of all jobs of one key, 3 daemons: the others", unit: "/s", yardstick: "the rate", bound: 0.99},
	{name: "busy-used", what: "the busy key", unit: "/s", yardstick: "its limit", bound: 0.97},
	{name: "busy-timers", what: "records in timers of a held job", bound: 1.05, atMost: true},
	{name: "busy-timers-most", what: "timers that a job has passed, at most", bound: 2, atMost: true},
	{name: "busy-memory", what: "memory of a daemon, at the end", unit: "MiB", yardstick: "after a quarter", bound: 1.1, atMost: true},
	{name: "pause-rate", what: "after a pause: a campaign of 500/s", unit: "/s", yardstick: "its rate", bound: 0.98},
	{name: "pause-second", what: "after the pause and a `kill -9`: keys above 1/1s"},
	{name: "resume", what: "a minute after a pause of 30 s: 40 keys of 2/20s with a backlog", unit: "/s", yardstick: "their limits", bound: 0.95},
	{name: "cap-settled", what: "max_wait 0, 3 daemons: delivered and capped", unit: "jobs", yardstick: "published", bound: 1},
	{name: "cap-back", what: "jobs under the cap that failed once: delivered", unit: "jobs", yardstick: "published", bound: 1},
	{name: "throttled-key", what: "429 with Retry-After 30: until the next job of the key, on 3 daemons", unit: "s", bound: 30},
	{name: "throttled-others", what: "the other keys meanwhile", unit: "/s", yardstick: "their rate", bound: 0.99},
	{name: "speed-http", what: "Kafka to http, 256 calls, a cap of 3/1d", unit: "/s", yardstick: "without keys", bound: 0.85},
	{name: "speed-http-cpu", what: "CPU of a job", unit: "µs", yardstick: "without keys"},
	{name: "speed-discard", what: "Kafka to discard, the same", unit: "/s", yardstick: "without keys"},
	{name: "speed-redis", what: "CPU of Redis for the keys of a job", unit: "µs", bound: 10, atMost: true},
	{name: "memory-first", what: "1,000,000 keys of a cap of 3/1d: memory of Redis a key, 1 job each", unit: "bytes", bound: 140, atMost: true},
	{name: "memory-full", what: "3 jobs each", unit: "bytes", bound: 140, atMost: true},
}

// TestKeys proves what keyed quotas promise, at full size, and prints one table. A key above its limit, a key in Redis without an end, a lost
// job or one that was sent twice fails it.
func TestKeys(t *testing.T) {
	table := newSpeedTable(keyRows)
	defer table.publish(t, "keys")
	inRounds(t, table, 1, []speedFigure{
		{"zipf", measureKeysZipf}, {"stream", measureKeysStream}, {"busy", measureKeysBusy}, {"pause", measureKeysPause}, {"resume", measureKeysResume}, {"cap", measureKeysCap},
		{"throttled", measureKeysThrottled}, {"speed", measureKeysSpeed}, {"memory", measureKeysMemory},
	})
}

// keySends are the jobs that the sink "noted" was given, by any daemon of the stack. The times are of the daemons' clock, in microseconds.
type keySends struct {
	t     *testing.T
	file  *recording.File
	byKey map[string][]arrival
	at    map[string]int64 // by job, of the first time
	again int              // jobs that were sent before

	earlier map[string][]string // jobs of the stream by key; see free
	seen    int
}

// newKeyStack is a stack on a Redis of its own. Its sink "noted" accepts and records each job at once.
func newKeyStack(t *testing.T) (*stack, *keySends, *testservices.Redis) {
	t.Helper()
	file, store := filepath.Join(t.TempDir(), "noted"), testservices.FreshRedis(t)
	s := newStack(t, stackOptions{
		partitions: 6, lanes: 64, redis: store.Addr, sinks: fmt.Sprintf("  noted: {type: discard, record: %q}\n  nowhere: {type: discard}", file),
	})
	return s, &keySends{t: t, file: recording.New(file), byKey: map[string][]arrival{}, at: map[string]int64{}}, store
}

// read adds what was recorded since the last call.
func (k *keySends) read() *keySends {
	k.t.Helper()
	err := k.file.Next(func(at time.Time, campaign, id string) error {
		key, a := keyOf(id), arrival{at: at.UnixMicro(), campaign: campaign, id: id}
		if _, known := k.at[id]; known {
			k.again++
		} else {
			k.at[id] = a.at
		}
		k.byKey[key] = append(k.byKey[key], a)
		return nil
	})
	noError(k.t, err)
	return k
}

// notAgain asserts that no job was sent twice.
func (k *keySends) notAgain() {
	k.t.Helper()
	if k.again > 0 {
		k.t.Errorf("%d jobs were sent twice", k.again)
	}
}

// between counts the jobs of a campaign in a stretch of time, those of one key aside.
func (k *keySends) between(campaign string, from time.Time, length time.Duration, except string) (n int) {
	for key, list := range k.byKey {
		for _, a := range list {
			if a.campaign == campaign && key != except && a.at >= from.UnixMicro() && a.at < from.Add(length).UnixMicro() {
				n++
			}
		}
	}
	return n
}

// most returns the largest part of a limit that a key was sent in any span, in per cent. More than all of it fails the test.
func (k *keySends) most(limit int, span time.Duration) (most float64) {
	k.t.Helper()
	over := 0
	for key, list := range k.byKey {
		sortByTime(list) // daemons write their lines when they have some
		n := rolling(list, span)
		if most = max(most, 100*float64(n)/float64(limit)); n > limit {
			if over++; over <= 5 {
				k.t.Errorf("key %s was sent %d jobs in %s, and %d are allowed", key, n, span, limit)
			}
		}
	}
	if over > 5 {
		k.t.Errorf("%d keys were sent more than %d jobs in %s", over, limit, span)
	}
	return most
}

// keyQuota creates a keyed quota of the key "to", with flags of its own, and puts the campaign under it.
func (s *stack) keyQuota(campaign, windows string, more ...string) {
	s.t.Helper()
	s.run(append([]string{"quota", "set", "per-" + campaign, "--per", "to", "--window", windows}, more...)...)
	s.under("per-"+campaign, campaign)
}

// startThree starts three daemons.
func (s *stack) startThree() []*daemon {
	s.t.Helper()
	daemons := []*daemon{s.start("one"), s.start("two"), s.start("three")}
	s.awaitWhole(len(daemons), daemons...)
	return daemons
}

// zipf are n jobs of a campaign, whose keys have the frequencies of Zipf's law.
func zipf(campaign string, n, keys int) []job {
	draw := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.01, 1, uint64(keys-1))
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = keyed(campaign, "k"+strconv.FormatUint(draw.Uint64(), 10), i)
	}
	return jobs
}

// firsts counts the jobs that can be sent within some seconds: at most two of each key.
func firsts(jobs []job) (n int) {
	seen := map[string]int{}
	for _, j := range jobs {
		key := keyOf(j.id)
		if seen[key]++; seen[key] <= 2 {
			n++
		}
	}
	return n
}

// forfeitedBy is how many slots passed unused, which has a reason for each daemon of a figure.
func forfeitedBy(daemons []*daemon) string {
	return fmt.Sprintf("%d slots passed unused", forfeited(daemons))
}

// highest is the value below which that part of the values lies.
func highest(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
