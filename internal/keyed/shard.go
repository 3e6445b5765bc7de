package keyed

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/shards"
)

const (
	batchTimeout = 500 * time.Millisecond // of one round trip
	answersKept  = time.Hour              // by the script
)

// shard has the checks of the keys of a shard.
type shard struct {
	*shards.Batcher[*check]

	client  redis.UniversalClient
	number  int
	prefix  string
	answers string // key of the latest answers
	log     *slog.Logger

	epochOf func(shard int) (epoch int64, known bool)
	// Of send:
	epoch  int64      // of the data when they were last asked
	lost   time.Time  // since when they are others
	last   int64      // number of the last batch
	unsure []*check   // the last batch, whose answers have not come: Redis may have executed it
	run    shards.Run // of it
	warned bool       // since Redis answered last

	foreignAt time.Time // when the log last named a key that is no hash
}

func newShard(s shard) *shard {
	s.answers = shards.Tag(s.prefix, s.number) + "a:" + rand.Text()
	s.Batcher = shards.NewBatcher(shards.Batch[*check]{Send: s.send, GiveUp: func(k *check, err error) { k.finish(0, err) }})
	return &s
}

// settle learns what has become of a batch whose answers have not come, and which was said to have failed: what was given is to be given back.
func (s *shard) settle() (back []*check, err error) {
	batch := s.unsure
	if len(batch) == 0 || time.Since(batch[0].asked) > answersKept {
		s.unsure = nil
		return nil, nil
	}
	s.run.Args[len(s.run.Args)-2] = -s.last
	answers, err := s.execute(s.run)
	switch {
	case s.unsure != nil:
		return nil, err
	case err == nil && len(answers) == len(batch):
		given := &group{}
		for i, k := range batch {
			k := *k
			k.group, k.answer, k.err = given, answers[i], nil
			given.checks = append(given.checks, &k)
		}
		back = given.returns(nil).checks
	}
	return back, nil
}

// execute runs the script. The batch stays unsure unless there are answers, the data were lost, or the script itself has failed: it has counted
// nothing then, and would fail again.
func (s *shard) execute(run shards.Run) ([]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	answers, err := script.Run(ctx, s.client, run).Int64Slice()
	if reply := redis.Error(nil); err == nil || redis.HasErrorPrefix(err, "EPOCH") || errors.As(err, &reply) && strings.Contains(reply.Error(), "user_script") {
		s.unsure = nil
	}
	return answers, err
}

// send makes one round trip with the checks, but for those that came too late: they would count jobs that are not sent. In an outage any of them
// shows when it is over.
func (s *shard) send(batch []*check) (again []*check, err error) {
	failing := s.Failing()
	batch = slices.DeleteFunc(batch, func(k *check) bool {
		if k.what == settling {
			return true
		}
		gone := !failing && k.group.gone()
		if gone {
			k.finish(0, errLate)
		}
		return gone
	})
	back, err := s.settle()
	batch = append(back, batch...)
	var answers []int64
	if err == nil && len(batch) > 0 {
		answers, err = s.call(batch)
	}
	switch {
	case err == nil && s.warned:
		s.warned = false
		s.log.Info("keyed quotas can be read again")
	case err == nil || s.warned || errors.Is(err, errLost) && s.epoch == 0: // the daemon has just started
	default:
		s.warned = true
		s.log.Warn("keyed quotas cannot be read; their jobs wait, or are sent if on_store_failure is open", "error", err)
	}
	for i, k := range batch {
		switch {
		case err != nil:
			k.finish(0, err)
		case answers[i] == foreign:
			s.logForeign(k)
			k.finish(0, errForeign)
		default:
			k.finish(answers[i], nil)
		}
	}
	if s.unsure != nil {
		again = []*check{{what: settling, group: &group{}}}
	}
	return again, err
}

// foreignEvery is how often the log names a key that is no hash.
const foreignEvery = time.Minute

func (s *shard) logForeign(k *check) {
	if time.Since(s.foreignAt) < foreignEvery {
		return
	}
	s.foreignAt = time.Now()
	s.log.Error("another program has overwritten a hash of keyed quotas; the jobs of its keys wait, or are sent if on_store_failure is open",
		"quota", k.quota.ID, "redis_key", k.id.spelled(s.prefix, s.number), "remedy", "delete it")
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
	keys, args := make([]string, 0, len(batch)+2), make([]any, 0, 4*len(batch)+2)
	now := time.Now()
	for _, k := range batch {
		k.asked = now
		keys = append(keys, k.id.hash(s.prefix, s.number))
		args = append(args, k.id.field(), asked(k.what, k.units, k.turned, k.spec), k.most, ahead(later(k.from, s.lost.Add(k.lost)), now))
	}
	s.last++
	s.unsure = batch
	s.run = shards.Run{Keys: append(keys, shards.Tag(s.prefix, s.number)+shards.ClockKey, s.answers), Args: append(args, s.last, epoch)}
	answers, err := s.execute(s.run)
	if err == nil && len(answers) != len(batch) {
		err = errShort
	}
	return answers, err
}
