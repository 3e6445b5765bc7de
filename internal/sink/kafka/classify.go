package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// result returns the result for the outcome of a record:
//
//	acknowledged by all in-sync replicas                  delivered
//	larger than the topic takes, not valid for the topic  permanent
//	unknown topic, not authorised, a login, a certificate misconfigured
//	too few replicas, a broker that works no more, or
//	written, and no acknowledgement came                  temporary
//	no connection, no leader                              unreachable: certainly not written
func (s *Sink) result(err error) delivery.Result {
	if err == nil {
		return delivery.Result{Class: delivery.Delivered}
	}
	res := delivery.Result{Detail: s.describe(err)}
	if code, ok := errors.AsType[kafka.Error](err); ok {
		res.Provider = &delivery.Provider{Code: code.Title()}
	}
	switch {
	case broker.TooLarge(err) || ofOneRecord(err):
		res.Class = delivery.Permanent
	case misconfigured(err):
		res.Class = delivery.Misconfigured
	case passing(err) || notWritten(err) && !answered(err):
		res.Class = delivery.Unreachable
	default:
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
		if !notWritten(err) {
			res.Detail += "; it may have been written"
		}
	}
	return res
}

// withdrawn returns the result of a call that was over before its record was sent.
func (s *Sink) withdrawn(ctx context.Context, e *entry) delivery.Result {
	if ctx.Err() != nil {
		return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before it was written to " + s.where}
	}
	if e.last != nil {
		return s.result(e.last)
	}
	return delivery.Result{
		Class: delivery.Unreachable, Detail: fmt.Sprintf("not written to %s within %s: others wait for an acknowledgement", s.where, s.config.Timeout),
	}
}

// ofOneRecord reports whether a batch was refused for one of its records, so that the others can be written without it.
func ofOneRecord(err error) bool {
	return errors.Is(err, kafka.InvalidRecord) || errors.Is(err, kafka.InvalidTimestamp) || errors.Is(err, kafka.InvalidMessageSize)
}

// passing reports whether a batch was certainly not written, for a reason that belongs to the normal operation of a cluster:
// its leader has moved or is being elected.
func passing(err error) bool {
	if !broker.NotWritten(err) {
		return false
	}
	code, _ := errors.AsType[kafka.Error](err) // 0 for none
	switch code {
	case kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.ReplicaNotAvailable, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch:
		return true
	}
	return errors.Is(err, protocol.ErrNoLeader)
}

// misconfigured reports whether an error is about the sink's settings or credentials, or about the topic as a whole.
func misconfigured(err error) bool {
	if broker.NoTopic(err) || broker.Refused(err) || httpcall.WrongSettings(err) {
		return true
	}
	code, ok := errors.AsType[kafka.Error](err)
	return ok && slices.Contains([]kafka.Error{
		kafka.InvalidTopic, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.SASLAuthenticationFailed,
		kafka.InvalidRequiredAcks, kafka.InvalidRequest, kafka.UnsupportedForMessageFormat, kafka.UnsupportedCompressionType,
		kafka.SecurityDisabled, kafka.BrokerAuthorizationFailed,
	}, code)
}

// answered reports whether a broker answered.
func answered(err error) bool {
	_, ok := errors.AsType[kafka.Error](err)
	return ok
}

// describe says what went wrong in one line: neither the payload nor a secret is in an error of the client.
func (s *Sink) describe(err error) string {
	var op *net.OpError
	code, isCode := errors.AsType[kafka.Error](err)
	switch {
	case broker.NoTopic(err) && !isCode:
		return s.where + ": there is no such topic, or the sink's user may not see it"
	case isCode:
		return s.where + ": " + code.Title() + " (" + code.Description() + ")"
	case errors.As(err, &op):
		return s.where + ": " + op.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer from " + s.where + " within " + s.config.Timeout.String()
	}
	return s.where + ": " + err.Error()
}

// blamed is the key of the setting that an error of a check is about.
func blamed(err error) string {
	code, _ := errors.AsType[kafka.Error](err) // 0 for none
	switch {
	case code == kafka.UnsupportedSASLMechanism || code == kafka.IllegalSASLState:
		return "sasl_mechanism"
	case code == kafka.SASLAuthenticationFailed:
		return "username"
	case httpcall.WrongSettings(err):
		return "tls"
	case broker.NoTopic(err) || code == kafka.TopicAuthorizationFailed || code == kafka.InvalidTopic:
		return "topic"
	}
	return "brokers"
}
