package limits

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/state.lua
var stateSource string

//go:embed lua/take.lua
var takeSource string

//go:embed lua/refund.lua
var refundSource string

//go:embed lua/peek.lua
var peekSource string

//go:embed lua/close.lua
var closeSource string

//go:embed lua/open.lua
var openSource string

// script is a Lua program and the digest Redis knows it by.
type script struct {
	source, sha string
}

// newScript puts the shared part before a script's own.
func newScript(body string) *script {
	source := stateSource + "\n" + body
	return &script{source: source, sha: redis.NewScript(source).Hash()}
}

var (
	takeScript   = newScript(takeSource)
	refundScript = newScript(refundSource)
	peekScript   = newScript(peekSource)
	closeScript  = newScript(closeSource)
	openScript   = newScript(openSource)
)

// call is one run of a script. Repeating it is harmless: those that change something carry a sequence number by
// which the script knows that it has run.
type call struct {
	keys  []string
	args  []any
	reply string
	err   error
}

// runner sends calls to Redis.
type runner struct {
	client  redis.UniversalClient
	timeout time.Duration // of one attempt
}

// attempts is how often a call whose outcome is unknown is sent. Grants are worth only milliseconds, so more would
// come too late.
const attempts = 2

// run sends the calls in one pipeline and leaves reply or error in each. Calls of unknown outcome (a timeout, a
// broken connection) are sent again as they are.
func (r *runner) run(ctx context.Context, s *script, calls []*call) {
	pending := calls
	for range attempts {
		r.attempt(ctx, s, pending)
		var again []*call
		for _, c := range pending {
			if c.err != nil && !answered(c.err) {
				again = append(again, c)
			}
		}
		if len(again) == 0 || ctx.Err() != nil {
			return
		}
		pending = again
	}
}

// attempt sends the calls by digest and those that Redis does not know by their text, which also loads the script:
// a SCRIPT FLUSH between loading and running cannot come in between.
func (r *runner) attempt(ctx context.Context, s *script, calls []*call) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	r.pipeline(ctx, calls, func(p redis.Pipeliner, c *call) *redis.Cmd {
		return p.EvalSha(ctx, s.sha, c.keys, c.args...)
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
	r.pipeline(ctx, unknown, func(p redis.Pipeliner, c *call) *redis.Cmd {
		return p.Eval(ctx, s.source, c.keys, c.args...)
	})
}

func (r *runner) pipeline(ctx context.Context, calls []*call, send func(redis.Pipeliner, *call) *redis.Cmd) {
	pipe := r.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = send(pipe, c)
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
