package requeue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	// DefaultSweep is the longest time between two sweeps.
	DefaultSweep = 20 * time.Second

	deleteTimeout = 10 * time.Second // of one request; the broker waits for its replicas for half of it
	lastSweep     = 3 * time.Second  // of the sweep at the end

	// wordHolds is how long what was told is believed. Who owns a partition tells again every few seconds; what nobody
	// repeats may speak of a topic that has been made anew since.
	wordHolds = time.Minute
)

// JanitorOptions of a Janitor. Client is required, zero values of the others stand for the defaults.
type JanitorOptions struct {
	// Client reaches Kafka. Its Transport is required, and its MetadataTopics, if set, name the lanes and timers.
	Client *kafka.Client
	// Sweep is the longest time between two sweeps, the shortest being half of it; 20 s.
	Sweep      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: not registered
}

// Janitor removes from lanes and timers what nobody will read again: those topics keep their records for ever, since jobs
// wait there. It is told by Passed how far a partition has been dealt with, and asks Kafka now and then (DeleteRecords),
// with one request for each broker, to remove what lies before. Kafka makes such records unreadable at once; it gives
// their disk back when a whole segment of the log lies before.
//
// It removes nothing that it was not told of in the last minute. What it could not do it does the next time, and what it
// knew is no loss when the process ends: whoever owns the partition next tells again.
//
// Passed is safe for use by several goroutines; Run is called once.
type Janitor struct {
	client  *kafka.Client
	sweep   time.Duration
	logger  *slog.Logger
	deleted prometheus.Counter

	mu     sync.Mutex
	passed map[partition]word // told, and not known to be removed

	// Of Run's goroutine.
	begins  map[partition]int64 // where the partitions begin, as last heard
	able    ability
	refused bool // said, and not yet over
}

// word is what was told of a partition.
type word struct {
	offset int64
	at     time.Time // when it was last
}

// ability is whether the brokers know the request.
type ability uint8

const (
	notAsked ability = iota
	able
	unable
)

// NewJanitor makes a janitor. It does no I/O.
func NewJanitor(o JanitorOptions) (*Janitor, error) {
	if _, err := newBroker(o.Client); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	if o.Sweep == 0 {
		o.Sweep = DefaultSweep
	}
	if o.Sweep < 2*time.Millisecond {
		return nil, errors.New("janitor: the time between two sweeps must be at least 2ms")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	j := &Janitor{
		client: o.Client, sweep: o.Sweep, logger: o.Logger,
		passed: map[partition]word{}, begins: map[partition]int64{},
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_janitor_deleted_records_total",
			Help: "Records removed from lanes and timers because every position has passed them.",
		}),
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(j.deleted); err != nil {
			return nil, fmt.Errorf("janitor: register metrics: %w", err)
		}
	}
	return j, nil
}

// Passed says that nothing of the partition before offset will be read again: the caller promises that the group's
// commit of it was acknowledged, and that whatever else it would go on from does not lie before. It is to be repeated
// while that holds. Never blocks.
func (j *Janitor) Passed(topic string, id int, offset int64) {
	if offset <= 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passed[partition{topic, id}] = word{offset, time.Now()}
}

// Run sweeps until ctx ends, once more then, and returns nil.
func (j *Janitor) Run(ctx context.Context) error {
	for {
		err := pause(ctx, j.sweep/2+rand.N(j.sweep/2))
		if err != nil {
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSweep)
			defer cancel()
			j.sweepOnce(final)
			return nil
		}
		j.sweepOnce(ctx)
	}
}

// sweepOnce removes all that it may.
func (j *Janitor) sweepOnce(ctx context.Context) {
	j.mu.Lock()
	due := make(map[partition]int64, len(j.passed))
	for at, told := range j.passed {
		if time.Since(told.at) > wordHolds {
			delete(j.passed, at)
		} else {
			due[at] = told.offset
		}
	}
	j.mu.Unlock()
	if len(due) == 0 || !j.can(ctx) {
		return
	}
	j.look(ctx, due)
	for at, offset := range due {
		begin, known := j.begins[at]
		if known && begin >= offset {
			j.done(at, offset)
		}
		if !known || begin >= offset {
			delete(due, at)
		}
	}
	if len(due) > 0 {
		j.say(j.remove(ctx, due))
	}
}

// look asks where the partitions begin of which that is not known, or no longer: one that is said to have been read less
// far was made anew. What is removed is counted from there.
func (j *Janitor) look(ctx context.Context, due map[partition]int64) {
	ask := map[string][]kafka.OffsetRequest{}
	for at, offset := range due {
		if begin, known := j.begins[at]; !known || offset < begin {
			delete(j.begins, at)
			ask[at.topic] = append(ask[at.topic], kafka.FirstOffsetOf(at.id))
		}
	}
	if len(ask) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	answer, err := j.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: ask})
	if err != nil {
		j.logger.Debug("kafka did not say where lanes and timers begin; trying again later", "error", err)
		return
	}
	for topic, list := range answer.Topics {
		for _, p := range list {
			if p.Error == nil {
				j.begins[partition{topic, p.Partition}] = p.FirstOffset
			}
		}
	}
}

// outcome is how a sweep went.
type outcome struct {
	worked  bool  // for some partition
	refusal error // of a broker that will not change its mind until somebody does something about it
}

// can finds out, once, whether the brokers know the request.
func (j *Janitor) can(ctx context.Context) bool {
	if j.able != notAsked {
		return j.able == able
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	answer, err := j.client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		j.logger.Debug("kafka was not asked whether it can delete records", "error", err)
		return false
	}
	j.able = unable
	for _, api := range answer.ApiKeys {
		if api.ApiKey == int(protocol.DeleteRecords) {
			j.able = able
		}
	}
	if j.able == unable {
		j.logger.Info("kafka cannot delete records; what was delivered stays in lanes and timers")
	}
	return j.able == able
}

// remove asks for everything before the offsets to be removed. What fails and is no refusal is tried again with the next
// sweep.
func (j *Janitor) remove(ctx context.Context, before map[partition]int64) (out outcome) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	req := &deleteRequest{TimeoutMs: int32((deleteTimeout / 2).Milliseconds())}
	for at, offset := range before {
		req.add(at, offset)
	}
	message, err := j.client.Transport.RoundTrip(ctx, j.client.Addr, req)
	answer, ok := message.(*deleteResponse)
	if err == nil && !ok {
		err = fmt.Errorf("unexpected answer %T", message)
	}
	if err != nil {
		j.logger.Debug("kafka was not asked to delete what was delivered; trying again later", "error", err)
		return out
	}
	answer.each(func(at partition, low int64, err error) {
		offset, asked := before[at]
		switch {
		case !asked:
		case err == nil:
			out.worked = true
			j.begin(at, low)
			if low >= offset {
				j.done(at, offset)
			}
		case errors.Is(err, kafka.OffsetOutOfRange): // the topic was made anew, and is shorter
			delete(j.begins, at)
			j.done(at, offset)
		case refuses(err):
			out.refusal = fmt.Errorf("delete records of %s/%d: %w", at.topic, at.id, err)
		default:
			j.logger.Debug("what was delivered is not deleted yet", "topic", at.topic, "partition", at.id, "error", err)
		}
	})
	return out
}

// refuses tells that asking again changes nothing.
func refuses(err error) bool {
	for _, code := range []kafka.Error{
		kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.PolicyViolation, kafka.UnsupportedVersion,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// begin notes where a partition begins, and counts what has gone since it was last heard.
func (j *Janitor) begin(at partition, low int64) {
	if was, known := j.begins[at]; known && low > was {
		j.deleted.Add(float64(low - was))
	}
	j.begins[at] = low
}

// done forgets a partition unless more was said of it meanwhile.
func (j *Janitor) done(at partition, offset int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.passed[at].offset == offset {
		delete(j.passed, at)
	}
}

// say tells when refusals begin and end.
func (j *Janitor) say(out outcome) {
	switch {
	case out.refusal != nil && !j.refused:
		j.refused = true
		j.logger.Warn("kafka refuses to delete what was delivered; lanes and timers grow until it does",
			"error", out.refusal, "remedy", "allow Delete on the topics that pacer owns")
	case out.refusal == nil && out.worked && j.refused:
		j.refused = false
		j.logger.Info("kafka deletes what was delivered again")
	}
}
