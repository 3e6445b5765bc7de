package shards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"
)

// explained adds the setting to correct to the error of a server that refuses the user, or is of another mode. One that has it
// already is unchanged. HasErrorPrefix ignores "ERR ".
func explained(err error) error {
	if _, done := errors.AsType[*advice](err); done {
		return err
	}
	switch {
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return &advice{err, "correct redis.username and redis.password"}
	case redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "The user executing the script"),
		redis.HasErrorPrefix(err, "ACL failure in script"):
		return &advice{err, "the user of redis.username lacks a right"}
	case redis.HasErrorPrefix(err, "DB index is out of range"):
		return &advice{err, "correct redis.db"}
	case redis.HasErrorPrefix(err, "MOVED"):
		return &advice{err, "it is a node of a cluster: set redis.mode to cluster"}
	case redis.HasErrorPrefix(err, "This instance has cluster support disabled"):
		return &advice{err, "it is no cluster: set redis.mode to single, sentinel or ring"}
	case redis.HasErrorPrefix(err, "unknown command 'set'"):
		return &advice{err, "is it a sentinel? set redis.mode to sentinel"}
	case strings.HasPrefix(err.Error(), "redis: all sentinels"):
		return &advice{err, "correct redis.addrs, which are those of sentinels, or redis.master_name"}
	}
	return err
}

// advice is an error with what to correct.
type advice struct {
	error
	what string
}

func (a *advice) Error() string { return a.error.Error() + "; " + a.what }

func (a *advice) Unwrap() error { return a.error }

// closedAtOnce adds what is likely to the error of a server that closes a connection without TLS before it answers.
func closedAtOnce(err error, encrypted bool) error {
	if errors.Is(err, io.EOF) && !encrypted {
		return fmt.Errorf("%w; does it expect TLS? set redis.tls", err)
	}
	return err
}

// explaining is the hook that explains the errors of all commands of a client.
type explaining struct{}

// DialHook implements redis.Hook.
func (explaining) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (explaining) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil {
			err = explained(err)
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (explaining) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			return nil
		}
		for _, cmd := range cmds {
			if failed := cmd.Err(); failed != nil {
				cmd.SetErr(explained(failed))
			}
		}
		return explained(err)
	}
}
