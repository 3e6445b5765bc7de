package limits

import (
	"context"
	"embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/shards"
)

//go:embed lua/*.lua
var sources embed.FS

// newScript puts files together into one program.
func newScript(names ...string) *shards.Script {
	for i, name := range names {
		names[i] = "lua/" + name + ".lua"
	}
	return shards.NewScript(sources, names...)
}

var (
	takeScript    = newScript("state", "gate", "window", "item", "timeline", "opened", "share", "take")
	refundScript  = newScript("state", "window", "item", "timeline", "refund")
	chargeScript  = newScript("state", "window", "charge")
	peekScript    = newScript("state", "window", "peek")
	adjustScript  = newScript("state", "window", "adjust")
	countScript   = newScript("state", "window", "count")
	restoreScript = newScript("state", "window", "restore")
	inspectScript = newScript("state", "inspect")
	closeScript   = newScript("state", "gate", "close")
	gatesScript   = newScript("state", "gate", "gates")
	shutScript    = newScript("state", "gate", "shut")
	shutsScript   = newScript("state", "gate", "shuts")
)

// call is one run of a script. Repeating it is harmless: those that change something carry a sequence number by
// which the script knows that it has run.
type call struct {
	head  header
	keys  []string
	args  []any  // after the header
	reply string // after its head
	now   int64  // the store's time, from the reply's head
	again bool   // it was sent before
	err   error
}

// runner sends calls to one shard.
type runner struct {
	client   redis.UniversalClient
	timeout  time.Duration // of one attempt
	clock    *shardClock
	override func() int64 // replaces Redis' clock in tests; nil otherwise
	uptime   func() int64 // that of this machine; nil: nothing is foretold
	epoch    func() int64 // of the data, 0 where it is not watched; nil where it must not be checked
}

// scriptTime is the time that each script of a pipeline adds to the timeout.
const scriptTime = 5 * time.Millisecond

// attempts is how often a call whose outcome is unknown is sent. Grants are useful only for milliseconds, so more
// attempts would come too late.
const attempts = 2

// run sends the calls in one pipeline and leaves reply or error in each. Calls of unknown outcome (a timeout, a
// broken connection) are sent again unchanged, and so are those that were late, or found that this machine's time stood still.
func (r *runner) run(ctx context.Context, s *shards.Script, calls []*call) {
	pending, started := calls, r.now()
	for range attempts {
		sent := r.now()
		r.attempt(ctx, s, pending)
		received := r.now()
		var again []*call
		for _, c := range pending {
			switch {
			case c.err == nil:
				c.err = r.readHead(c, started)
			case redis.HasErrorPrefix(c.err, "EPOCH"):
				c.err = ledger.ErrEpoch
			case redis.HasErrorPrefix(c.err, "CLOCK"):
				if err := r.judge(c, sent, received); err != nil {
					c.err = err
					continue
				}
				again = append(again, c)
			case !answered(c.err):
				c.again = true
				again = append(again, c)
			}
		}
		if len(again) == 0 || ctx.Err() != nil {
			return
		}
		pending = again
	}
}

// now is the uptime of this machine.
func (r *runner) now() int64 {
	if r.uptime == nil {
		return 0
	}
	return r.uptime()
}

// readHead reads the head of a reply.
func (r *runner) readHead(c *call, sent int64) error {
	in := reader{rest: c.reply}
	in.next(7) // seq
	now := in.next(7)
	if in.err != nil {
		return in.err
	}
	c.now, c.reply = now, in.rest
	if r.clock != nil && r.uptime != nil {
		r.clock.observe(now, sent, r.now())
	}
	return nil
}

// prepare completes the headers. Where lost data is not rebuilt, nothing is refused.
func (r *runner) prepare(calls []*call) {
	now := r.now()
	for _, c := range calls {
		if r.override != nil {
			c.head.override = r.override()
		}
		if r.epoch != nil {
			c.head.epoch = r.epoch()
		}
		if r.clock != nil && r.uptime != nil && (r.epoch == nil || c.head.epoch != 0) {
			c.head.low, c.head.high, c.head.witness = r.clock.expect(now)
		}
	}
}

// attempt sends the calls.
func (r *runner) attempt(ctx context.Context, s *shards.Script, calls []*call) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout+time.Duration(len(calls))*scriptTime)
	defer cancel()
	r.prepare(calls)
	runs := make([]shards.Run, len(calls))
	for i, c := range calls {
		runs[i] = shards.Run{Keys: c.keys, Args: append([]any{c.head.encode()}, c.args...)}
	}
	replies := s.Pipeline(ctx, r.client, runs)
	for i, c := range calls {
		c.reply, c.err = replies[i].Text()
	}
}

// answered reports whether Redis itself refused the call, so that nothing was done.
func answered(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused) || errors.Is(err, ledger.ErrEpoch)
}
