package progress

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/exchange.lua
var exchangeSource string

var exchangeScript = redis.NewScript(exchangeSource)

// Board is where daemons leave their parts for each other. Safe for concurrent use.
type Board interface {
	// Exchange leaves this daemon's part and returns everybody's, its own as well. Parts older than keep are taken off.
	Exchange(ctx context.Context, daemon string, part []byte, keep time.Duration) ([]Left, error)
}

// Left is a part that a daemon has left.
type Left struct {
	Daemon string
	Age    time.Duration
	Part   []byte
}

// maxParts bounds how many daemons' parts a board holds.
const maxParts = 256

// RedisBoard is a Board in one key of Redis.
type RedisBoard struct {
	client redis.UniversalClient
	key    string
}

// NewRedisBoard makes a board; it connects to nothing. The prefix is that of all keys of this installation, which begin
// with it in braces.
func NewRedisBoard(client redis.UniversalClient, prefix string) *RedisBoard {
	return &RedisBoard{client: client, key: "{" + prefix + "}progress"}
}

var errReply = errors.New("the board's reply cannot be read")

// Exchange implements Board.
func (b *RedisBoard) Exchange(ctx context.Context, daemon string, part []byte, keep time.Duration) ([]Left, error) {
	reply, err := exchangeScript.Run(ctx, b.client, []string{b.key}, daemon, part, keep.Milliseconds(), maxParts).Slice()
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
