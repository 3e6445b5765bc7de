package progress

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/leave.lua
var leaveSource string

//go:embed lua/publish.lua
var publishSource string

var (
	leaveScript   = redis.NewScript(leaveSource)
	publishScript = redis.NewScript(publishSource)
)

// Exchange passes progress between daemons. Safe for concurrent use.
type Exchange interface {
	// Swap stores this daemon's part and returns the newest summary of all parts. If this daemon leads, sumUp makes it from them.
	Swap(ctx context.Context, daemon string, part []byte, sumUp func([]Left) []byte) (Summary, error)
	// Resign ends the lead of this daemon, so that another one leads at once.
	Resign(ctx context.Context) error
}

// Left is a part that a daemon has left.
type Left struct {
	Daemon string
	Age    time.Duration
	Part   []byte
}

// Summary is a summary as a daemon is told of it.
type Summary struct {
	Leader  string // that made it
	Age     time.Duration
	Summary []byte // nil: there is none
}

// leadFor is how long a daemon leads that makes no summary: longer than the longest time between two exchanges.
const leadFor = 4 * time.Second

// RedisExchange is an Exchange in Redis. The data read and written each second grows with the number of daemons: only the daemon that
// leads reads the parts of all, and the others read what it makes of them.
type RedisExchange struct {
	client                 redis.UniversalClient
	parts, leader, summary string // keys
}

// NewRedisExchange makes an exchange; it opens no connection. The keys begin with the prefix, which all keys of this
// installation share, in braces.
func NewRedisExchange(client redis.UniversalClient, prefix string) *RedisExchange {
	prefix = "{" + prefix + "}"
	return &RedisExchange{
		client: client, parts: prefix + "progress", leader: prefix + "progress-leader", summary: prefix + "progress-summary",
	}
}

// Resign implements Exchange. If another daemon has taken over in this moment, a third one does.
func (x *RedisExchange) Resign(ctx context.Context) error {
	if err := x.client.Del(ctx, x.leader).Err(); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}

var (
	errReply   = errors.New("the reply cannot be read")
	errDeposed = errors.New("another daemon sums it up now")
)

func failed(err error) error { return fmt.Errorf("exchange progress: %w", err) }

// Swap implements Exchange.
func (x *RedisExchange) Swap(ctx context.Context, daemon string, part []byte, sumUp func([]Left) []byte) (Summary, error) {
	keys := []string{x.parts, x.leader, x.summary}
	reply, err := leaveScript.Run(ctx, x.client, keys, daemon, part, keepFor.Milliseconds(), leadFor.Milliseconds()).StringSlice()
	if err != nil {
		return Summary{}, failed(err)
	}
	if len(reply) != 3 {
		return Summary{}, failed(errReply)
	}
	now, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return Summary{}, failed(errReply)
	}
	if reply[1] != daemon {
		return readSummary(reply[2], time.UnixMicro(now)), nil
	}
	at, left, err := x.read(ctx)
	if err != nil {
		return Summary{}, err
	}
	t := Summary{Leader: daemon, Summary: sumUp(left)}
	return t, x.publish(ctx, t, at, left)
}

// publish stores a summary for the other daemons, and removes the parts that are too old.
func (x *RedisExchange) publish(ctx context.Context, t Summary, at time.Time, left []Left) error {
	stored := strconv.FormatInt(at.UnixMicro(), 10) + " " + t.Leader + " " + string(t.Summary)
	arguments := []any{t.Leader, stored, keepFor.Milliseconds(), leadFor.Milliseconds()}
	for _, l := range left {
		if l.Age >= keepFor {
			arguments = append(arguments, l.Daemon)
		}
	}
	leads, err := publishScript.Run(ctx, x.client, []string{x.parts, x.leader, x.summary}, arguments...).Bool()
	if err == nil && !leads {
		err = errDeposed
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// readSummary splits a summary as stored; it is empty if there is none.
func readSummary(stored string, now time.Time) (t Summary) {
	stamp, rest, _ := strings.Cut(stored, " ")
	leader, body, found := strings.Cut(rest, " ")
	at, err := strconv.ParseInt(stamp, 10, 64)
	if !found || err != nil {
		return t
	}
	return Summary{Leader: leader, Age: now.Sub(time.UnixMicro(at)).Abs(), Summary: []byte(body)} // of the future: the clock has jumped back
}

// read returns the parts of all daemons, and changes nothing.
func (x *RedisExchange) read(ctx context.Context) (at time.Time, all []Left, err error) {
	pipe := x.client.Pipeline()
	clock, parts := pipe.Time(ctx), pipe.HGetAll(ctx, x.parts)
	if _, err := pipe.Exec(ctx); err != nil {
		return at, nil, fmt.Errorf("read progress: %w", err)
	}
	for daemon, text := range parts.Val() {
		stamp, body, _ := strings.Cut(text, " ")
		at, _ := strconv.ParseInt(stamp, 10, 64)                                                                    // what is no part is too old
		all = append(all, Left{Daemon: daemon, Age: clock.Val().Sub(time.UnixMilli(at)).Abs(), Part: []byte(body)}) // as in readSummary
	}
	return clock.Val(), all, nil
}

// last returns the summary that was stored last.
func (x *RedisExchange) last(ctx context.Context) (Summary, error) {
	pipe := x.client.Pipeline()
	clock, stored := pipe.Time(ctx), pipe.Get(ctx, x.summary)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return Summary{}, fmt.Errorf("read progress: %w", err)
	}
	return readSummary(stored.Val(), clock.Val()), nil
}
