package limits

import (
	"context"
	"embed"
	"errors"
	"fmt"
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
	takeScript    = newScript("state", "window", "item", "timeline", "opened", "share", "keep", "take")
	refundScript  = newScript("state", "window", "item", "timeline", "refund")
	chargeScript  = newScript("state", "window", "charge")
	peekScript    = newScript("state", "window", "peek")
	adjustScript  = newScript("state", "window", "adjust")
	claimsScript  = newScript("state", "window", "claims")
	countScript   = newScript("state", "window", "count")
	restoreScript = newScript("state", "window", "restore")
	inspectScript = newScript("state", "inspect")
	retireScript  = newScript("state", "retire")
	closeScript   = newScript("state", "modes", "close")
	openScript    = newScript("state", "modes", "open")
	gatesScript   = newScript("state", "gates")
	shutScript    = newScript("state", "modes", "shut")
	shutsScript   = newScript("state", "shuts")
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
	override func() int64     // replaces Redis' clock in tests; nil otherwise
	local    func() time.Time // the local clock that goes with override; nil: nothing is foretold under override
	epoch    func() int64     // of the data, 0 where it is not watched; nil where it must not be checked
}

// scriptTime is the time that each script of a pipeline adds to the timeout.
const scriptTime = 5 * time.Millisecond

// attempts is how often a call whose outcome is unknown is sent. Grants are useful only for milliseconds, so more
// attempts would come too late.
const attempts = 2

// followWithin is how far the clock may advance between two scripts of a pipeline.
const followWithin = 50 * time.Millisecond

// ahead is how far a script found the clock ahead of the prediction; 0 if it does not say.
func ahead(err error) time.Duration {
	var micros int64
	if err == nil {
		return 0
	}
	if _, scanErr := fmt.Sscanf(err.Error(), "CLOCK %d", &micros); scanErr != nil {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}

// isLate reports whether a script was refused because it may have been under way for long, or Redis' clock have stepped.
func isLate(err error) bool { return ahead(err) > 0 }

// run sends the calls in one pipeline and leaves reply or error in each. Calls of unknown outcome (a timeout, a
// broken connection) are sent again unchanged, and so are those that found the clock outside the predicted
// range.
func (r *runner) run(ctx context.Context, s *shards.Script, calls []*call) {
	pending, started := calls, r.time()
	for range attempts {
		sent := r.time()
		r.attempt(ctx, s, pending)
		took := r.time().Sub(sent)
		var again []*call
		for _, c := range pending {
			switch {
			case c.err == nil:
				c.err = r.readHead(c, started)
			case redis.HasErrorPrefix(c.err, "EPOCH"):
				c.err = ledger.ErrEpoch
			case redis.HasErrorPrefix(c.err, "CLOCK"), !answered(c.err):
				// It cannot have been under way for longer than the whole attempt took. If it may have been, the reading is
				// good for the next prediction: on a busy machine, that is as late again.
				by := ahead(c.err)
				c.head.sure, c.again = by > took, true
				if by > 0 && !c.head.sure {
					r.clock.observe(c.head.high+by.Microseconds(), c.head.steps, sent, sent.Add(took))
				}
				again = append(again, c)
			}
		}
		if len(again) == 0 || ctx.Err() != nil {
			return
		}
		pending = again
	}
}

func (r *runner) time() time.Time {
	if r.local != nil {
		return r.local()
	}
	return time.Now()
}

// readHead reads the head of a reply.
func (r *runner) readHead(c *call, sent time.Time) error {
	in := reader{rest: c.reply}
	in.next(7) // seq
	now, steps := in.next(7), in.next(4)
	if in.err != nil {
		return in.err
	}
	c.now, c.reply = now, in.rest
	if r.clock != nil {
		r.clock.observe(now, steps, sent, r.time())
	}
	return nil
}

// prepare completes the headers. The first call of a pipeline carries the range in which the clock is expected. The
// others run right after it, but how long after depends on its work; they declare that they follow, so that they are
// refused if it is refused. Repeated calls cannot rely on the one before them, which may only return its stored reply.
func (r *runner) prepare(calls []*call) {
	foretell := r.clock != nil && (r.override == nil || r.local != nil)
	for i, c := range calls {
		if r.override != nil {
			c.head.override = r.override()
		}
		switch {
		case foretell && (i == 0 || c.again):
			c.head.low, c.head.high, c.head.steps = r.clock.expect(r.time())
		case foretell:
			c.head.low, c.head.high = 0, followWithin.Microseconds()
		}
		if r.epoch == nil {
			continue
		}
		c.head.check, c.head.epoch = checkNothing, r.epoch()
		if c.head.epoch != 0 {
			c.head.check = checkProcess
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
