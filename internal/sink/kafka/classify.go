package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// classes are what codes of a broker mean that say more than that a record was not written. After an unreachable one, which belongs to the normal
// operation of a cluster (its leader has moved or is being elected), a batch is written again.
var classes = map[kafka.Error]delivery.ResultClass{
	kafka.MessageSizeTooLarge: delivery.Permanent, kafka.RecordListTooLarge: delivery.Permanent,
	kafka.InvalidRecord: delivery.Permanent, kafka.InvalidTimestamp: delivery.Permanent, kafka.InvalidMessageSize: delivery.Permanent,

	kafka.UnknownTopicOrPartition: delivery.Misconfigured, kafka.InvalidTopic: delivery.Misconfigured,
	kafka.TopicAuthorizationFailed: delivery.Misconfigured, kafka.ClusterAuthorizationFailed: delivery.Misconfigured,
	kafka.BrokerAuthorizationFailed: delivery.Misconfigured, kafka.PolicyViolation: delivery.Misconfigured,
	kafka.UnsupportedSASLMechanism: delivery.Misconfigured, kafka.IllegalSASLState: delivery.Misconfigured,
	kafka.SASLAuthenticationFailed: delivery.Misconfigured, kafka.SecurityDisabled: delivery.Misconfigured,
	kafka.InvalidRequiredAcks: delivery.Misconfigured, kafka.InvalidRequest: delivery.Misconfigured, kafka.UnsupportedVersion: delivery.Misconfigured,
	kafka.UnsupportedForMessageFormat: delivery.Misconfigured, kafka.UnsupportedCompressionType: delivery.Misconfigured,

	kafka.NotLeaderForPartition: delivery.Unreachable, kafka.LeaderNotAvailable: delivery.Unreachable, kafka.ReplicaNotAvailable: delivery.Unreachable,
	kafka.FencedLeaderEpoch: delivery.Unreachable, kafka.UnknownLeaderEpoch: delivery.Unreachable,
}

// classOf returns the class of the code in an error; the zero one, delivered, if there is none that says more.
func classOf(err error) delivery.ResultClass {
	code, _ := errors.AsType[kafka.Error](err) // 0 for none
	return classes[code]
}

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
	code, answered := errors.AsType[kafka.Error](err)
	if answered {
		res.Provider = &delivery.Provider{Code: code.Title()}
	}
	switch class := classes[code]; {
	case class == delivery.Permanent || class == delivery.Misconfigured:
		res.Class = class
	case broker.NoTopic(err) || httpcall.WrongSettings(err):
		res.Class = delivery.Misconfigured
	case passing(err) || broker.NotWritten(err) && !answered:
		res.Class = delivery.Unreachable
	default:
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
		if !broker.NotWritten(err) {
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
func ofOneRecord(err error) bool { return classOf(err) == delivery.Permanent }

// passing reports whether a batch was certainly not written, for a reason that passes by itself.
func passing(err error) bool {
	return broker.NotWritten(err) && (classOf(err) == delivery.Unreachable || errors.Is(err, protocol.ErrNoLeader))
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
