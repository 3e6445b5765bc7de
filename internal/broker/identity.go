package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
)

// Identify asks any broker for the ids of topics. A topic made anew has another id than the one before it. Names of topics that
// do not exist are left out. For a moment after a topic was made anew, the answer may be the id of the topic before it.
func (c *Client) Identify(ctx context.Context, topics ...string) (map[string]delivery.TopicID, error) {
	return c.identify(ctx, &identityRequest{topics: topics})
}

// IdentityOf asks the leader of a partition for the id of its topic. A broker that serves the log of a topic does
// not take its name for a topic before it.
func (c *Client) IdentityOf(ctx context.Context, at Partition) (delivery.TopicID, error) {
	found, err := c.identify(ctx, &identityRequest{topics: []string{at.Topic}, of: at, led: true})
	id, ok := found[at.Topic]
	if err == nil && !ok {
		err = fmt.Errorf("read the id of topic %s: %w", at.Topic, ErrNoTopic)
	}
	return id, err
}

func (c *Client) identify(ctx context.Context, r *identityRequest) (map[string]delivery.TopicID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := ask[*identityResponse](ctx, c, r)
	if err != nil {
		return nil, fmt.Errorf("read the ids of topics: %w", err)
	}
	return answer.topics, nil
}

// identityRequest is a request for metadata of version 10 or later, which has ids of topics. kafka-go's own ends at
// version 8, and only one message can be registered for each kind of request, so this one is exchanged in the encoding
// of kmsg.
type identityRequest struct {
	topics []string
	of     Partition
	led    bool // asks the leader of the partition
	rights bool // asks what the user may do
}

type identityResponse struct {
	topics  map[string]delivery.TopicID
	allowed map[string]int32 // if asked for; see lacking
}

// ApiKey implements protocol.Message.
func (*identityRequest) ApiKey() protocol.ApiKey { return protocol.Metadata } //nolint:revive // its spelling

// ApiKey implements protocol.Message.
func (*identityResponse) ApiKey() protocol.ApiKey { return protocol.Metadata } //nolint:revive // its spelling

// Broker returns the leader of the partition, or any broker.
func (r *identityRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if r.led {
		return leaderOf(cluster, r.of), nil
	}
	return protocol.Broker{ID: noLeader}, nil
}

// Required makes kafka-go call RawExchange.
func (*identityRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// Versions of the request: the first with ids, and the last that is known to be understood.
const (
	firstWithIDs = 10
	lastWithIDs  = 12
)

var errNoIDs = errors.New("the broker knows no ids of topics; pacer needs Kafka 2.8 or later")

// RawExchange asks the broker which versions it knows, and then for the metadata. A connection has one exchange at a
// time, with kafka-go's deadline.
func (r *identityRequest) RawExchange(conn io.ReadWriter) (protocol.Message, error) {
	versions := kmsg.NewPtrApiVersionsRequest() // of version 0, which every broker knows
	known := kmsg.NewPtrApiVersionsResponse()
	if err := exchange(conn, versions, known); err != nil {
		return nil, err
	}
	request := kmsg.NewPtrMetadataRequest()
	for _, k := range known.ApiKeys {
		if k.ApiKey == request.Key() {
			request.Version = min(k.MaxVersion, lastWithIDs)
		}
	}
	if request.Version < firstWithIDs {
		return nil, errNoIDs
	}
	request.IncludeTopicAuthorizedOperations = r.rights
	request.Topics = make([]kmsg.MetadataRequestTopic, len(r.topics))
	for i, name := range r.topics {
		request.Topics[i].Topic = kmsg.StringPtr(name)
	}
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.Version = request.Version
	if err := exchange(conn, request, metadata); err != nil {
		return nil, err
	}
	answer := &identityResponse{map[string]delivery.TopicID{}, map[string]int32{}}
	for _, t := range metadata.Topics {
		switch {
		case t.Topic == nil:
		case t.ErrorCode == 0:
			answer.topics[*t.Topic] = delivery.NewTopicID(t.TopicID)
			answer.allowed[*t.Topic] = t.AuthorizedOperations
		case kafka.Error(t.ErrorCode) == kafka.TopicAuthorizationFailed:
			answer.allowed[*t.Topic] = 0
		}
	}
	return answer, nil
}

// maxAnswerBytes bounds an answer: a hundred bytes for each partition of the topics, or what the members of a group say.
const maxAnswerBytes = 64 << 20

// exchange writes one request and reads its answer.
func exchange(conn io.ReadWriter, request kmsg.Request, answer kmsg.Response) error {
	const correlation = 1
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	if _, err := conn.Write(format.AppendRequest(nil, request, correlation)); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if size < 0 || size > maxAnswerBytes || binary.BigEndian.Uint32(head[4:]) != correlation {
		return fmt.Errorf("the answer to a request begins with %x", head)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	if !answer.IsFlexible() {
		return answer.ReadFrom(body)
	}
	body, ok := withoutTags(body)
	if !ok {
		return errors.New("the header of an answer ends early")
	}
	return answer.ReadFrom(body)
}

// withoutTags skips the tags that end the header of an answer.
func withoutTags(b []byte) (rest []byte, ok bool) {
	next := func() (v uint64) {
		v, n := binary.Uvarint(b)
		ok = ok && n > 0
		b = b[max(n, 0):]
		return v
	}
	ok = true
	for tags := next(); ok && tags > 0; tags-- {
		next() // the tag
		size := next()
		if ok = ok && size <= uint64(len(b)); ok {
			b = b[size:]
		}
	}
	return b, ok
}
