package app

import (
	"context"
	"fmt"
	"log/slog"
)

// redisLog takes what go-redis would write to standard error by itself, a line in a format of its own for every attempt
// to connect. Whoever called the client has the error and says it once; the lines are for those who look closer.
type redisLog struct{ log *slog.Logger }

// Printf is what go-redis calls.
func (r redisLog) Printf(ctx context.Context, format string, args ...any) {
	if !r.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	r.log.DebugContext(ctx, "redis client", "says", fmt.Sprintf(format, args...))
}
