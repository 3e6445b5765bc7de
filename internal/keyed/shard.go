package keyed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/shards"
)

const batchTimeout = 500 * time.Millisecond // of one round trip

// shard has the checks of the keys of a shard.
type shard struct {
	*shards.Batcher[*check]

	client redis.UniversalClient
	number int
	prefix string
	log    *slog.Logger

	epochOf func(shard int) (epoch int64, known bool)
	epoch   int64     // of the data when they were last asked; of send
	lost    time.Time // since when they are others; of send
}

func newShard(s shard) *shard {
	s.Batcher = shards.NewBatcher(shards.Batch[*check]{Send: s.send, GiveUp: func(k *check, err error) { k.finish(0, err) }})
	return &s
}

// send makes one round trip with the checks, but for those that came too late: they would count jobs that are not sent. In an outage any of them
// shows when it is over.
func (s *shard) send(batch []*check) (again []*check, err error) {
	failing := s.Failing()
	batch = slices.DeleteFunc(batch, func(k *check) bool {
		gone := !failing && k.group.gone()
		if gone {
			k.finish(0, errLate)
		}
		return gone
	})
	if len(batch) == 0 {
		return nil, nil
	}
	answers, err := s.call(batch)
	switch {
	case errors.Is(err, errLost) && s.epoch == 0: // the daemon has just started
	case err != nil && !s.Failing():
		s.log.Warn("keyed quotas cannot be read; their jobs wait, or are sent if on_store_failure is open", "error", err)
	case err == nil && s.Failing():
		s.log.Info("keyed quotas can be read again")
	}
	for i, k := range batch {
		if err != nil {
			k.finish(0, err)
		} else {
			k.finish(answers[i], nil)
		}
	}
	return nil, err
}

func (s *shard) call(batch []*check) ([]int64, error) {
	epoch, known := s.epochOf(s.number)
	if !known {
		return nil, errLost
	}
	if s.epoch != 0 && s.epoch != epoch { // the catalog says it some seconds later
		s.lost = time.Now()
	}
	s.epoch = epoch
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	keys, args := make([]string, 0, len(batch)+1), make([]any, 0, 6*len(batch)+1)
	asked := time.Now()
	for _, k := range batch {
		k.asked = asked
		keys = append(keys, k.id.key(s.prefix, s.number))
		turned := 0
		if k.turned {
			turned = 1
		}
		args = append(args, k.what, k.units, k.most, max(k.from, millis(s.lost.Add(k.lost))), turned, k.spec)
	}
	run := shards.Run{Keys: append(keys, shards.Tag(s.prefix, s.number)+shards.ClockKey), Args: append(args, epoch)}
	answers, err := script.Run(ctx, s.client, run).Int64Slice()
	if err == nil && len(answers) != len(batch) {
		err = errShort
	}
	return answers, err
}
