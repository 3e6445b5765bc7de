package app

import (
	"context"
	"time"

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
	to := broker.Partition{Topic: topic, ID: broker.HashPartition(string(record.Key), n)}
	acked := false
	writer := broker.Writer[delivery.Record]{
		Client: w.client, Encode: func(r delivery.Record, _ time.Time) delivery.Record { return r },
		Acked:  func([]delivery.Record) { acked = true },
		Failed: func(_ broker.Chunk[delivery.Record], refusal error) { err = refusal },
	}
	writer.Write(ctx, []broker.Chunk[delivery.Record]{{To: to, Items: []delivery.Record{record}}})
	if acked {
		return false, nil
	}
	return broker.TooLarge(err), err
}
