package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka-go lacks some messages, has others in old versions only, and decompresses all records of an answer before it returns the first. So
// these requests are encoded by kmsg, and exchanged over the connections of kafka-go.

// versions are those of the requests that are encoded by kmsg. Brokers since Kafka 2.8 accept them.
var versions = map[protocol.ApiKey]int16{
	protocol.Fetch: 11, protocol.JoinGroup: 5, protocol.SyncGroup: 3, protocol.Heartbeat: 3, protocol.DeleteRecords: 1,
	protocol.Metadata: firstWithIDs, protocol.OffsetCommit: 7, protocol.OffsetFetch: 5, protocol.FindCoordinator: 2,
	protocol.LeaveGroup: 2, protocol.DescribeGroups: 3,
}

// firstWithIDs is the first version of the metadata that has ids of topics.
const firstWithIDs = 10

// wireRequest is a request to one broker, or, without that, to any.
type wireRequest struct {
	kmsg.Request
	broker int
	accept func(size int64) error // see exchange
}

type wireAnswer struct {
	kmsg.Response
	body *bytes.Buffer // a part of the answer may refer to it
}

// ApiKey implements protocol.Message.
func (r *wireRequest) ApiKey() protocol.ApiKey { return protocol.ApiKey(r.Key()) } //nolint:revive // its spelling

// ApiKey implements protocol.Message.
func (a *wireAnswer) ApiKey() protocol.ApiKey { return protocol.ApiKey(a.Key()) } //nolint:revive // its spelling

// Broker implements protocol.BrokerMessage. A broker that is unknown is replaced by any, which answers that it is not the one.
func (r *wireRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if b, ok := cluster.Brokers[int32(r.broker)]; ok {
		return b, nil
	}
	return protocol.Broker{ID: noLeader}, nil
}

// Required makes kafka-go call RawExchange.
func (*wireRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange sends the request and reads the answer. A connection has one exchange at a time, with kafka-go's deadline.
func (r *wireRequest) RawExchange(conn io.ReadWriter) (protocol.Message, error) {
	r.SetVersion(versions[r.ApiKey()])
	answer := &wireAnswer{Response: r.ResponseKind()}
	var err error
	answer.body, err = exchange(conn, r.Request, answer.Response, r.accept)
	return answer, err
}

// exchanged sends a request to a broker, or to any, and returns the answer.
func exchanged[R kmsg.Response](ctx context.Context, c *Client, broker int, request kmsg.Request) (response R, err error) {
	response, _, err = exchangedUpTo[R](ctx, c, broker, request, withoutRecords)
	return response, err
}

// exchangedUpTo is exchanged for an answer of a size that accept accepts. Call free when its bytes are not used any more.
func exchangedUpTo[R kmsg.Response](
	ctx context.Context, c *Client, broker int, request kmsg.Request, accept func(size int64) error,
) (response R, free func(), err error) {
	answer, err := c.kafka.Transport.RoundTrip(ctx, c.kafka.Addr, &wireRequest{request, broker, accept})
	if err != nil {
		return response, nil, err
	}
	is := answer.(*wireAnswer)
	return is.Response.(R), func() { keepBody(is.body) }, nil
}

// bodies have memory for answers to come.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptBody bounds the memory of an answer, in bytes, that is kept.
const maxKeptBody = 2 << 20

func keepBody(b *bytes.Buffer) {
	if b != nil && b.Cap() <= maxKeptBody {
		b.Reset()
		bodies.Put(b)
	}
}

// maxAnswer bounds an answer without records, in bytes: a hundred for each partition of the topics, or what the members of a group say.
const maxAnswer = 64 << 20

// withoutRecords accepts the size of an answer without records.
func withoutRecords(size int64) error {
	if size > maxAnswer {
		return fmt.Errorf("an answer has %d bytes", size)
	}
	return nil
}

// exchange writes one request and reads its answer, if accept accepts its size. The answer may refer to the body.
func exchange(conn io.ReadWriter, request kmsg.Request, answer kmsg.Response, accept func(size int64) error) (body *bytes.Buffer, err error) {
	const correlation = 1
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	answer.SetVersion(request.GetVersion())
	if _, err = conn.Write(format.AppendRequest(nil, request, correlation)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err = io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if size < 0 || binary.BigEndian.Uint32(head[4:]) != correlation {
		return nil, fmt.Errorf("the answer to a request begins with %x", head)
	}
	if err = accept(size); err != nil {
		return nil, err
	}
	body = bodies.Get().(*bytes.Buffer)
	body.Grow(int(size) + bytes.MinRead)
	if _, err = io.CopyN(body, conn, size); err != nil {
		return nil, err
	}
	content := kbin.Reader{Src: body.Bytes()}
	if answer.IsFlexible() { // its header ends with tags
		for tags := content.Uvarint(); tags > 0 && content.Ok(); tags-- {
			content.Uvarint()
			content.Span(int(content.Uvarint()))
		}
	}
	if !content.Ok() {
		return nil, errors.New("the header of an answer ends early")
	}
	return body, answer.ReadFrom(content.Src)
}
