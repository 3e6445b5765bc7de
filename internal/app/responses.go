package app

import (
	"context"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

// recordWriter is the sink.Writer of a daemon.
type recordWriter struct{ client *broker.Client }

// Write implements sink.Writer.
func (w recordWriter) Write(ctx context.Context, topic string, record delivery.Record) (tooLarge bool, err error) {
	n, err := w.client.Partitions(ctx, topic)
	if err != nil {
		return false, err
	}
	to := []broker.Partition{{Topic: topic, ID: broker.HashPartition(string(record.Key), n)}}
	_, err = broker.NewProducer(broker.ProducerOptions{Client: w.client}).PublishTo(ctx, to, broker.All([]delivery.Record{record}), nil)
	return broker.TooLarge(err), err
}
