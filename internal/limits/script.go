package limits

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a Lua program and the digest Redis knows it by.
type script struct {
	source, sha string
}

// newScript puts files together into one program.
func newScript(files ...string) *script {
	var source string
	for _, f := range files {
		text, err := sources.ReadFile("lua/" + f + ".lua")
		if err != nil {
			panic(err) // it is part of the program
		}
		source += string(text) + "\n"
	}
	return &script{source: source, sha: redis.NewScript(source).Hash()}
}

var (
	takeScript    = newScript("state", "window", "take")
	refundScript  = newScript("state", "window", "refund")
	chargeScript  = newScript("state", "window", "charge")
	peekScript    = newScript("state", "window", "peek")
	restoreScript = newScript("state", "window", "restore")
	inspectScript = newScript("state", "inspect")
	retireScript  = newScript("state", "retire")
	closeScript   = newScript("state", "close")
	openScript    = newScript("state", "open")
)

// errIncarnation says that a store's data is not what it was: it was lost, or it is another process that answers.
var errIncarnation error = incarnationError{}

// incarnationError is a refusal by Redis.
type incarnationError struct{}

func (incarnationError) Error() string { return "the store's data is not what it was" }
func (incarnationError) RedisError()   {}

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
	client      redis.UniversalClient
	timeout     time.Duration // of one attempt
	replica     bool          // the client may only read
	clock       *shardClock
	override    func() int64     // in the place of Redis' clock, in tests; nil otherwise
	local       func() time.Time // the local clock that goes with override; nil: nothing is foretold under override
	incarnation func() int64     // of the data, 0 where it is not watched; nil where it must not be checked
}

// scriptTime is what each script of a pipeline adds to the time that it may take.
const scriptTime = 5 * time.Millisecond

// attempts is how often a call whose outcome is unknown is sent. Grants are worth only milliseconds, so more would
// come too late.
const attempts = 2

// followWithin is by how much the clock may go on between two scripts of a pipeline.
const followWithin = 50 * time.Millisecond

// ahead is by how much a script found the clock ahead of where it was foretold; 0 where it does not say.
func ahead(err error) time.Duration {
	var micros int64
	if _, scanErr := fmt.Sscanf(err.Error(), "CLOCK %d", &micros); scanErr != nil {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}

// run sends the calls in one pipeline and leaves reply or error in each. Calls of unknown outcome (a timeout, a
// broken connection) are sent again as they are; and those that found the clock elsewhere than foretold.
func (r *runner) run(ctx context.Context, s *script, calls []*call) {
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
			case redis.HasErrorPrefix(c.err, "INCARNATION"):
				c.err = errIncarnation
			case redis.HasErrorPrefix(c.err, "CLOCK"):
				// It cannot have been under way for longer than the whole attempt took.
				c.head.sure = ahead(c.err) > took
				again = append(again, c)
			case !answered(c.err):
				again = append(again, c)
			}
		}
		for _, c := range again {
			c.again = true
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

// readHead takes the head off a reply.
func (r *runner) readHead(c *call, sent time.Time) error {
	in := reader{rest: c.reply}
	in.next(7) // seq
	now, epoch := in.next(7), in.next(4)
	if in.err != nil {
		return in.err
	}
	c.now, c.reply = now, in.rest
	if r.clock != nil && !r.replica {
		r.clock.observe(now, epoch, sent, r.time())
	}
	return nil
}

// prepare completes the headers. The first call of a pipeline says where the clock is expected. The others run right
// after it, but how long after depends on what it has to do; they say that they follow, so that they are refused where
// it is. Calls that are repeated cannot rely on the one before them, which may only return its stored reply.
func (r *runner) prepare(calls []*call) {
	foretell := r.clock != nil && (r.override == nil || r.local != nil)
	for i, c := range calls {
		if r.override != nil {
			c.head.override = r.override()
		}
		switch {
		case foretell && (i == 0 || c.again):
			c.head.low, c.head.high, c.head.epoch = r.clock.expect(r.time())
		case foretell:
			c.head.low, c.head.high = 0, followWithin.Microseconds()
		}
		if r.incarnation == nil {
			continue
		}
		c.head.check, c.head.incarnation = checkNothing, r.incarnation()
		if c.head.incarnation != 0 {
			c.head.check = checkProcess
			if r.replica {
				c.head.check = checkReplica
			}
		}
	}
}

// attempt sends the calls by digest and those that Redis does not know by their text, which also loads the script:
// a SCRIPT FLUSH between loading and running cannot come in between.
func (r *runner) attempt(ctx context.Context, s *script, calls []*call) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout+time.Duration(len(calls))*scriptTime)
	defer cancel()
	r.prepare(calls)
	r.pipeline(ctx, calls, func(p redis.Pipeliner, c *call, args []any) *redis.Cmd {
		if r.replica {
			return p.EvalShaRO(ctx, s.sha, c.keys, args...)
		}
		return p.EvalSha(ctx, s.sha, c.keys, args...)
	})
	var unknown []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) == 0 {
		return
	}
	r.pipeline(ctx, unknown, func(p redis.Pipeliner, c *call, args []any) *redis.Cmd {
		if r.replica {
			return p.EvalRO(ctx, s.source, c.keys, args...)
		}
		return p.Eval(ctx, s.source, c.keys, args...)
	})
}

func (r *runner) pipeline(ctx context.Context, calls []*call, send func(redis.Pipeliner, *call, []any) *redis.Cmd) {
	pipe := r.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = send(pipe, c, append([]any{c.head.encode()}, c.args...))
	}
	_, execErr := pipe.Exec(ctx)
	for i, c := range calls {
		c.reply, c.err = cmds[i].Text()
		if c.err == nil && c.reply == "" {
			// Exec can fail before any command was tried, on a closed client for instance.
			c.err = execErr
		}
	}
}

// answered tells whether Redis itself refused, so that nothing was done.
func answered(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused)
}
