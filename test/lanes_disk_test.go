//go:build e2e

package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// DescribeLogDirs is not among the messages that kafka-go knows. This is version 1 of it, as Kafka's protocol guide has it:
// https://kafka.apache.org/protocol#The_Messages_DescribeLogDirs.
type (
	logDirsRequest struct {
		Topics []logDirsTopic `kafka:"min=v1,max=v1,nullable"`
	}
	logDirsTopic struct {
		Topic      string  `kafka:"min=v1,max=v1"`
		Partitions []int32 `kafka:"min=v1,max=v1"`
	}
	logDirsResponse struct {
		ThrottleTimeMs int32    `kafka:"min=v1,max=v1"`
		Dirs           []logDir `kafka:"min=v1,max=v1"`
	}
	logDir struct {
		ErrorCode int16         `kafka:"min=v1,max=v1"`
		Path      string        `kafka:"min=v1,max=v1"`
		Topics    []logDirTopic `kafka:"min=v1,max=v1"`
	}
	logDirTopic struct {
		Topic      string            `kafka:"min=v1,max=v1"`
		Partitions []logDirPartition `kafka:"min=v1,max=v1"`
	}
	logDirPartition struct {
		Partition int32 `kafka:"min=v1,max=v1"`
		Size      int64 `kafka:"min=v1,max=v1"` // bytes
		Lag       int64 `kafka:"min=v1,max=v1"`
		Future    bool  `kafka:"min=v1,max=v1"`
	}
)

func init() { protocol.Register(&logDirsRequest{}, &logDirsResponse{}) }

func (*logDirsRequest) ApiKey() protocol.ApiKey  { return protocol.DescribeLogDirs } //nolint:revive // its spelling
func (*logDirsResponse) ApiKey() protocol.ApiKey { return protocol.DescribeLogDirs } //nolint:revive // its spelling

// onDisk is how many MiB the stack's lanes and timers take at the broker that answers.
func (s *stack) onDisk() int {
	s.t.Helper()
	ctx := s.soon()
	answer, err := s.client.Transport.RoundTrip(ctx, s.client.Addr, &logDirsRequest{})
	noError(s.t, err)
	size := int64(0)
	for _, dir := range answer.(*logDirsResponse).Dirs {
		for _, topic := range dir.Topics {
			if strings.HasPrefix(topic.Topic, s.prefix+"lanes") || strings.HasPrefix(topic.Topic, s.prefix+"timer") {
				for _, p := range topic.Partitions {
					size += p.Size
				}
			}
		}
	}
	return int(size >> 20)
}

// waitingRecords is how many records lie in lanes and timers, and how many were ever written there.
func (s *stack) waitingRecords() (now, ever int64) {
	s.t.Helper()
	inLanes, lanes := s.held("lanes")
	inTimers, timers := s.held("timer")
	return inLanes + inTimers, lanes + timers
}

// measureDisk: when many jobs have gone through lanes and timers, how long what was delivered stays in them.
func measureDisk(t *testing.T, table *laneTable) {
	ids := numbered(40)
	each := laneJobs(t, 1_000_000) / len(ids)
	const perSecond, bound = 1000, 2 * time.Minute
	s, sent := newLaneStack(t, 16)
	d := s.waiting(ids, each, func(int) float64 { return perSecond })
	s.resume(0)
	s.throughTimers(ids, each, len(ids)*each/10)
	jobs := len(ids) * (each + each/10)
	peak := 0
	s.await(time.Hour, "every job", func() bool {
		peak = max(peak, s.onDisk())
		time.Sleep(time.Second)
		return sent.read().total >= jobs
	})
	delivered := time.Now()
	left, ever := s.waitingRecords()
	for left > 0 && time.Since(delivered) < bound+30*time.Second {
		time.Sleep(time.Second)
		left, ever = s.waitingRecords()
	}
	took := time.Since(delivered)
	table.add(t, fmt.Sprintf("%d records through lanes and timers: all gone", ever),
		fmt.Sprintf("%d left %.0f s after the last delivery", left, took.Seconds()), "0 within 120 s", left == 0 && took <= bound)
	time.Sleep(bound - took) // the broker removes the files a minute after it was told to
	table.add(t, "lanes and timers on disk", fmt.Sprintf("%d MiB 120 s after the last delivery, %d MiB at most before",
		s.onDisk(), peak), "(printed)", true)
	lost, again := sent.fates(ids, each+each/10)
	table.none(t, "lost, sent twice", lost, again)
	s.inMemory(table, d, 256)
}

// throughTimers publishes jobs, numbered from first on, that may not be sent for six more seconds: too long for memory.
func (s *stack) throughTimers(ids []string, first, n int) {
	s.t.Helper()
	jobs := make([]job, 0, n)
	notBefore := time.Now().Add(6*time.Second + time.Duration(n/50_000)*time.Second)
	later := header("pacer-not-before", notBefore.UTC().Format(time.RFC3339Nano))
	for i := range n {
		id := ids[i%len(ids)]
		jobs = append(jobs, job{campaign: id, id: fmt.Sprintf("%s-%d", id, first+i/len(ids)), headers: []kafka.Header{later}})
	}
	s.publish(jobs)
}
