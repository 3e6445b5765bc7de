package broker

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// ErrNoTopic means that the broker does not know a topic.
var ErrNoTopic = errors.New("topic does not exist")

// OutOfRange reports whether err means that a partition does not contain the offset to read, or to delete up to.
func OutOfRange(err error) bool { return errors.Is(err, kafka.OffsetOutOfRange) }

// NoTopic reports whether err means that the broker does not know the topic or the partition.
func NoTopic(err error) bool {
	return errors.Is(err, ErrNoTopic) || errors.Is(err, kafka.UnknownTopicOrPartition) ||
		errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

// TooLarge reports whether err means that a batch was refused for its size, so that sending it again is useless.
func TooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
}

// errAppended means that a leader was deposed after it had appended a batch, while it waited for its replicas. The next
// leader may have the batch or not.
var errAppended = errors.New("appended by a leader that was deposed")

// unsent is an error after which nothing of a request was sent: there was no encrypted connection, or it was not known
// where to.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// Unsent returns err as one before anything of a request was sent.
func Unsent(err error) error { return &unsent{err} }

// NotWritten reports whether err means that the broker certainly did not write a batch. Any other error (a lost
// connection, a timeout, a leader or replicas that failed after the append) leaves the outcome unknown.
func NotWritten(err error) bool {
	switch {
	case errors.Is(err, ErrNoTopic), errors.Is(err, protocol.ErrNoTopic), errors.Is(err, protocol.ErrNoPartition),
		errors.Is(err, protocol.ErrNoLeader): // kafka-go did not know where to send the request
		return true
	case errors.Is(err, errAppended):
		return false
	}
	if dialing, ok := errors.AsType[*net.OpError](err); ok && dialing.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*unsent](err); ok {
		return true
	}
	code, ok := errors.AsType[kafka.Error](err)
	switch code {
	case kafka.Unknown, kafka.RequestTimedOut, kafka.NetworkException, kafka.NotEnoughReplicasAfterAppend, kafka.KafkaStorageError:
		return false
	}
	return ok
}

// Busy reports whether err belongs to the normal operation of a cluster: an election, loading, a rebalance, or a new
// topic that not all brokers know yet.
func Busy(err error) bool {
	code, _ := errors.AsType[kafka.Error](err) // 0 for none
	switch code {
	case kafka.RebalanceInProgress, kafka.NotCoordinatorForGroup, kafka.GroupLoadInProgress,
		kafka.GroupCoordinatorNotAvailable, kafka.UnknownMemberId, kafka.IllegalGeneration, kafka.MemberIDRequired,
		kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.UnknownTopicOrPartition, kafka.FencedLeaderEpoch:
		return true
	}
	return false
}

// Fenced reports whether err means that the group has moved on without the member that committed.
func Fenced(err error) bool {
	return errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberId)
}

// Rebalances reports whether err means that the group rebalances: its members have to join anew.
func Rebalances(err error) bool { return errors.Is(err, kafka.RebalanceInProgress) }

// Outdated reports whether err means that a request was one of another generation than the group has, which knows the member.
func Outdated(err error) bool { return errors.Is(err, kafka.IllegalGeneration) }

// NamesMember reports whether err means that the group gave the member the ID that it has to join with.
func NamesMember(err error) bool { return errors.Is(err, kafka.MemberIDRequired) }

// Declined reports whether err, of a commit, is an answer that the next one gets as well: the broker is not busy with itself. That the group
// has moved on says nothing about the commit.
func Declined(err error) bool {
	code, ok := errors.AsType[kafka.Error](err)
	return NoTopic(err) || ok && !Busy(err) && !code.Temporary()
}

// Refused reports whether err lasts until an operator changes something, so that repeating the request is useless.
func Refused(err error) bool {
	return slices.ContainsFunc([]kafka.Error{
		kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.PolicyViolation, kafka.UnsupportedVersion,
	}, func(code kafka.Error) bool { return errors.Is(err, code) })
}

// Explained adds the setting to correct to the error of a broker that refuses pacer's user. Other errors are unchanged,
// and so is one that has it already.
func Explained(err error) error {
	if _, done := errors.AsType[*advice](err); done {
		return err
	}
	code, _ := errors.AsType[kafka.Error](err) // 0 for none
	switch code {
	case kafka.SASLAuthenticationFailed:
		return &advice{err, "correct kafka.sasl.username or kafka.sasl.password"}
	case kafka.UnsupportedSASLMechanism:
		return &advice{err, "correct kafka.sasl.mechanism"}
	case kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		return &advice{err, "the user of kafka.sasl lacks a right"}
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

// codeError returns the error of a code in an answer; nil for none.
func codeError(code int16) error {
	if code == 0 {
		return nil
	}
	return kafka.Error(code)
}

// unnamed returns an error of kafka.Client without the name of the method, which says nothing to an operator.
func unnamed(err error) error {
	if cause := errors.Unwrap(err); cause != nil && strings.HasPrefix(err.Error(), "kafka.(*") {
		return cause
	}
	return err
}

// Health reduces the failures of hundreds of readers at one broker to one Warn line when trouble begins and one Info line when it is
// over. Refusals that last until an operator acts are apart, so that they do not hide an outage. So is a refused login, which is an
// Error. Safe for concurrent use.
type Health struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]failure
	warned  map[trouble]bool
}

// trouble is a kind of failures.
type trouble int

const (
	unanswered trouble = iota
	refused
	noLogin
)

func troubleOf(err error) trouble {
	switch {
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		return noLogin
	case Refused(err):
		return refused
	}
	return unanswered
}

type failure struct {
	since time.Time
	trouble
}

// NewHealth makes a Health without failures.
func NewHealth(log *slog.Logger) *Health {
	return &Health{log: log, failing: map[string]failure{}, warned: map[trouble]bool{}}
}

// settling is how long a cluster may be busy (electing, loading, rebalancing, telling its brokers of a new topic)
// before it is logged.
const settling = 10 * time.Second

// Fail records a failure; key names what failed, and is passed to OK when it works again.
func (h *Health) Fail(key string, err error) {
	now, err := time.Now(), Explained(err)
	h.mu.Lock()
	is := failure{cmp.Or(h.failing[key].since, now), troubleOf(err)}
	h.failing[key] = is
	warn := !h.warned[is.trouble] && (!Busy(err) || now.Sub(is.since) > settling)
	if warn {
		h.warned[is.trouble] = true
	}
	h.mu.Unlock()
	switch {
	case warn && is.trouble == noLogin:
		h.log.Error("kafka refuses the login of this daemon; nothing is read or written until kafka accepts it", "at", key, "error", err)
	case warn:
		h.log.Warn("kafka does not answer as it should; retrying until it does", "at", key, "error", err)
	default:
		h.log.Debug("kafka does not answer as it should", "at", key, "error", err)
	}
}

// OK records that something works.
func (h *Health) OK(key string) {
	h.mu.Lock()
	delete(h.failing, key)
	over := false
	for kind := range h.warned {
		if !slices.ContainsFunc(slices.Collect(maps.Values(h.failing)), func(f failure) bool { return f.trouble == kind }) {
			delete(h.warned, kind)
			over = true
		}
	}
	h.mu.Unlock()
	if over {
		h.log.Info("kafka answers again")
	}
}

// Forget drops a key that will not be tried again, such as a lost partition. It says nothing about the broker.
func (h *Health) Forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failing, key)
}
