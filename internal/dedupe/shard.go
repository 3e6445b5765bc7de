package dedupe

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/shards"
)

const batchTimeout = 500 * time.Millisecond // of one round trip

//go:embed lua/lease.lua
var sources embed.FS

var script = shards.NewScript(sources, "lua/lease.lua")

// The kinds of entries, as in the script.
const (
	leaseEntry   = "lease"
	markEntry    = "mark"
	releaseEntry = "release"
	lookEntry    = "look"
	cancelEntry  = "cancel"
)

// The script's answers to a lease, a look and a cancellation. Any other answer is how many milliseconds another node still has the job.
const (
	leased    = 0
	delivered = -1
	cancelled = -2
)

// entry is one operation on the ledger.
type entry struct {
	what  string
	id    id
	token string
	keep  time.Duration // how long Redis keeps the value

	answer int64         // valid once done is closed
	err    error         // valid once done is closed
	done   chan struct{} // closed when the entry has been processed
	gone   atomic.Bool   // a lease that is no longer wanted
}

func newEntry(what string, i id, token string, keep time.Duration) *entry {
	return &entry{what: what, id: i, token: token, keep: keep, done: make(chan struct{})}
}

func (e *entry) finish(answer int64, err error) {
	e.answer, e.err = answer, err
	close(e.done)
}

// shard has the entries of a shard's jobs. Marks are kept until Redis has stored them, in their order and before any later entry of this node.
// Other entries fail with an error.
type shard struct {
	*shards.Batcher[*entry]

	client redis.UniversalClient
	tag    string
	node   string
	m      *metrics
	log    *slog.Logger // names the shard
	open   bool         // jobs are sent while Redis does not answer
}

func newShard(s shard) *shard {
	s.Batcher = shards.NewBatcher(shards.Batch[*entry]{Send: s.send, GiveUp: s.giveUp, Unwanted: (*entry).unwanted})
	return &s
}

func (s *shard) giveUp(e *entry, err error) {
	if e.what == markEntry {
		s.m.unmarked.Inc()
	}
	e.finish(0, err)
}

// unwanted ends a lease that is no longer wanted.
func (e *entry) unwanted() bool {
	if !e.gone.Load() {
		return false
	}
	e.finish(0, shards.ErrEnded)
	return true
}

// send makes one round trip. After an error marks are sent again, or else a lease of no job.
func (s *shard) send(batch []*entry) (again []*entry, err error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	answers, err := execute(ctx, s.client, s.tag, s.node, batch)
	s.m.seconds.Observe(time.Since(begun).Seconds())
	s.m.entries.Observe(float64(len(batch)))
	switch {
	case err == nil && s.Failing():
		s.log.Info("the dedupe ledger answers again")
	case err == nil || s.Failing():
	case s.open:
		s.log.Warn("the dedupe ledger does not answer; jobs are sent without it, and may be sent twice", "error", err)
	default:
		s.log.Warn("the dedupe ledger does not answer; jobs wait until it does", "error", err)
	}
	for i, e := range batch {
		switch {
		case err == nil:
			e.finish(answers[i], nil)
		case e.what == markEntry:
			again = append(again, e)
		default:
			e.finish(0, err)
		}
	}
	if err != nil && len(again) == 0 { // an entry that writes shows when Redis answers again, whether jobs come or not
		again = append(again, newEntry(leaseEntry, id{}, s.node, batchTimeout))
	}
	return again, err
}

// execute runs the script on entries of one shard, for a node. After an error it is unknown whether it ran; the same entries may be sent again.
func execute(ctx context.Context, client redis.UniversalClient, tag, node string, batch []*entry) ([]int64, error) {
	keys, args := make([]string, len(batch)), make([]any, 1, 1+3*len(batch))
	args[0] = node
	for i, e := range batch {
		keys[i] = e.id.key(tag)
		args = append(args, e.what, e.token, e.keep.Milliseconds())
	}
	answers, err := script.Run(ctx, client, shards.Run{Keys: keys, Args: args}).Int64Slice()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("%d answers for %d entries", len(answers), len(batch))
	}
	return answers, err
}
