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

//go:embed lua/exchange.lua
var exchangeSource string

//go:embed lua/newest.lua
var newestSource string

var (
	exchangeScript = redis.NewScript(exchangeSource)
	newestScript   = redis.NewScript(newestSource)
)

// Exchange passes parts between daemons. Safe for concurrent use.
type Exchange interface {
	// Swap stores this daemon's part and returns those of all daemons, including its own. Parts older than keep are
	// removed.
	Swap(ctx context.Context, daemon string, part []byte, keep time.Duration) ([]Left, error)
	// Newest returns the highest revision of the catalog that it was ever told, this one included.
	Newest(ctx context.Context, revision int64) (int64, error)
}

// Left is a part that a daemon has stored.
type Left struct {
	Daemon string
	Age    time.Duration
	Part   []byte
}

// maxParts bounds the number of daemons whose parts an exchange holds.
const maxParts = 256

// RedisExchange is an Exchange in Redis: the parts are one key, and the newest revision is another.
type RedisExchange struct {
	client   redis.UniversalClient
	key      string
	revision string
}

// NewRedisExchange makes an exchange; it opens no connection. The keys begin with the prefix, which all keys of this
// installation share, in braces.
func NewRedisExchange(client redis.UniversalClient, prefix string) *RedisExchange {
	return &RedisExchange{client: client, key: "{" + prefix + "}progress", revision: "{" + prefix + "}revision"}
}

// Newest implements Exchange.
func (x *RedisExchange) Newest(ctx context.Context, revision int64) (int64, error) {
	newest, err := newestScript.Run(ctx, x.client, []string{x.revision}, revision).Int64()
	if err != nil {
		return 0, fmt.Errorf("exchange revisions: %w", err)
	}
	return newest, nil
}

// read returns the parts of all daemons, and changes nothing.
func (x *RedisExchange) read(ctx context.Context) ([]Left, error) {
	pipe := x.client.Pipeline()
	clock, parts := pipe.Time(ctx), pipe.HGetAll(ctx, x.key)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	var all []Left
	for daemon, text := range parts.Val() {
		stamp, body, found := strings.Cut(text, " ")
		at, err := strconv.ParseInt(stamp, 10, 64)
		if !found || err != nil {
			continue // not a part
		}
		age := max(0, clock.Val().Sub(time.UnixMilli(at)))
		if age < keepFor {
			all = append(all, Left{Daemon: daemon, Age: age, Part: []byte(body)})
		}
	}
	return all, nil
}

var errReply = errors.New("the reply to an exchange cannot be read")

// Swap implements Exchange.
func (x *RedisExchange) Swap(ctx context.Context, daemon string, part []byte, keep time.Duration) ([]Left, error) {
	reply, err := exchangeScript.Run(ctx, x.client, []string{x.key}, daemon, part, keep.Milliseconds(), maxParts).Slice()
	if err != nil {
		return nil, fmt.Errorf("exchange progress: %w", err)
	}
	if len(reply)%3 != 0 {
		return nil, fmt.Errorf("exchange progress: %w", errReply)
	}
	var all []Left
	for i := 0; i < len(reply); i += 3 {
		name, ok1 := reply[i].(string)
		age, ok2 := reply[i+1].(int64)
		body, ok3 := reply[i+2].(string)
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("exchange progress: %w", errReply)
		}
		all = append(all, Left{Daemon: name, Age: time.Duration(age) * time.Millisecond, Part: []byte(body)})
	}
	return all, nil
}
