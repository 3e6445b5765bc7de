package shards

import (
	"context"
	"io/fs"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua program with its SHA-1 digest. It is run by its digest; to a server that does not know it, it is
// sent as text, which also loads it, so that no SCRIPT FLUSH can come in between.
type Script struct {
	text func() (source, sha string)
}

// NewScript concatenates files into one program, when it is needed first. That panics if a file is missing: they are embedded.
func NewScript(files fs.FS, names ...string) *Script {
	return &Script{text: sync.OnceValues(func() (source, sha string) {
		var b strings.Builder
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				panic(err)
			}
			b.Write(text)
			b.WriteByte('\n')
		}
		return b.String(), redis.NewScript(b.String()).Hash()
	})}
}

// Run holds the arguments of one run of a script.
type Run struct {
	Keys []string
	Args []any
}

// Run runs the script once.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, run Run) *redis.Cmd {
	return s.Pipeline(ctx, client, []Run{run})[0]
}

// Pipeline runs the script once for each of the runs, in one round trip, and returns their replies in the order of the
// runs. A second round trip follows for runs that the server refused because it did not know the script.
func (s *Script) Pipeline(ctx context.Context, client redis.UniversalClient, runs []Run) []*redis.Cmd {
	source, sha := s.text()
	replies := send(ctx, client, runs, redis.Pipeliner.EvalSha, sha)
	var unknown []Run
	var at []int
	for i, run := range runs {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			unknown, at = append(unknown, run), append(at, i)
		}
	}
	if len(unknown) > 0 {
		for i, r := range send(ctx, client, unknown, redis.Pipeliner.Eval, source) {
			replies[at[i]] = r
		}
	}
	return replies
}

// eval is one of a pipeline's methods that run a script.
type eval func(p redis.Pipeliner, ctx context.Context, script string, keys []string, args ...any) *redis.Cmd

func send(ctx context.Context, client redis.UniversalClient, runs []Run, by eval, script string) []*redis.Cmd {
	pipe := client.Pipeline()
	replies := make([]*redis.Cmd, len(runs))
	for i, r := range runs {
		replies[i] = by(pipe, ctx, script, r.Keys, r.Args...)
	}
	_, err := pipe.Exec(ctx)
	for _, r := range replies {
		if r.Err() == nil && r.Val() == nil {
			r.SetErr(err) // Exec can fail before it tries any command, on a closed client for instance
		}
	}
	return replies
}

// Hash returns the script's digest for EVALSHA.
func (s *Script) Hash() string {
	_, sha := s.text()
	return sha
}
