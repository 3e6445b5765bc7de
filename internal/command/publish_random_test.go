package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

// stop is where a person ends a call that publishes: while one of its requests is under way.
type stop struct {
	request int
	refused bool // the broker refuses it; else it is written
}

// filePublisher publishes the files of one random test.
type filePublisher struct {
	*publisher
	topic string
	stop  atomic.Pointer[func(kmsg.Request) (kmsg.Response, error, bool)] // called for each request that writes; nil: none is stopped
}

// publishes runs a call, which is stopped or not, and returns its exit code and what it reports.
func (p *filePublisher) publishes(rt *rapid.T, line string, at *stop) (code int, v publishSummary, says string) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	requests := 0
	control := func(r kmsg.Request) (kmsg.Response, error, bool) {
		if requests++; at == nil || requests != at.request {
			return nil, nil, false
		}
		cancel()
		if !at.refused {
			return nil, nil, false
		}
		return forbidden(r.(*kmsg.ProduceRequest)), nil, true
	}
	p.stop.Store(&control)
	defer p.stop.Store(nil)
	var out, errs bytes.Buffer
	environ := append(slices.Clone(p.environ), "PACER_KAFKA_TOPICS="+p.topic)
	code = Run(ctx, strings.Fields(line+" --json"), World{strings.NewReader(""), &out, &errs, environ})
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &v); err != nil {
			rt.Fatalf("%s prints %s", line, out.String())
		}
	}
	return code, v, errs.String()
}

// forbidden is the answer of a broker that does not let the client write.
func forbidden(r *kmsg.ProduceRequest) kmsg.Response {
	answer := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range r.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, part := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition, partition.ErrorCode = part.Partition, kerr.TopicAuthorizationFailed.Code
			topic.Partitions = append(topic.Partitions, partition)
		}
		answer.Topics = append(answer.Topics, topic)
	}
	return answer
}

// written returns the payloads in the topic, by job id.
func (p *filePublisher) written(rt *rapid.T) map[string][]string {
	client, err := broker.New(broker.Options{Brokers: p.kafka.ListenAddrs(), Topics: []string{p.topic}})
	if err != nil {
		rt.Fatal(err)
	}
	defer client.Close()
	payloads := map[string][]string{}
	for r, err := range client.Scan(p.t.Context(), broker.Partition{Topic: p.topic}, 0) {
		if err != nil {
			rt.Fatal(err)
		}
		id := r.Header(delivery.HeaderJobID)
		payloads[id] = append(payloads[id], string(r.Value))
	}
	return payloads
}

// TestAPublishedFileIsWhole: a file is published by several calls, which are stopped at random, and it may be edited between them. The topic
// has each of its jobs, unchanged. No call claims more jobs than the topic has. Only a batch that was under way is there twice.
func TestAPublishedFileIsWhole(t *testing.T) {
	p := &filePublisher{publisher: newPublisher(t)}
	p.kafka.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		p.kafka.KeepControl()
		if control := p.stop.Load(); control != nil {
			return (*control)(r)
		}
		return nil, nil, false
	})
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		p.topic = fmt.Sprintf("jobs-%d", checks)
		if err := p.kafka.CreateTopic(p.topic, 1, nil); err != nil {
			rt.Fatal(err)
		}
		jobs, named := rapid.IntRange(1, 1800).Draw(rt, "jobs"), rapid.Bool().Draw(rt, "named")
		gaps := rapid.IntRange(2, 50).Draw(rt, "gaps")
		line := "publish --campaign spring --file jobs.jsonl"
		if named {
			line += " --map id=k"
		}
		var lines []string
		for i := range jobs {
			if i%gaps == 1 {
				lines = append(lines, "")
			}
			lines = append(lines, fmt.Sprintf(`{"k":"u-%d"}`, i))
		}
		p.file("jobs.jsonl", strings.Join(lines, "\n"))
		stops := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) stop {
			return stop{rapid.IntRange(1, 4).Draw(rt, "request"), rapid.Bool().Draw(rt, "refused")}
		}), 0, 3).Draw(rt, "stops")
		twice := 0
		for i := range stops {
			code, v, says := p.publishes(rt, line, &stops[i])
			if known := len(p.written(rt)); int(v.Before+v.Published) > known || v.Complete != (code == 0) || code > 1 {
				rt.Fatalf("code %d, %+v, and %d jobs are in the topic: %s", code, v, known, says)
			}
			if code == 0 {
				break
			}
			if twice += 500; rapid.Bool().Draw(rt, "edited") {
				p.file("jobs.jsonl", strings.Join(append([]string{`{"k":"other"}`}, lines[1:]...), "\n"))
				if code, _, says := p.publishes(rt, line, nil); code != 1 || !strings.Contains(says, "is of another content") {
					rt.Fatalf("an edited file: code %d, %s", code, says)
				}
				p.file("jobs.jsonl", strings.Join(lines, "\n"))
			}
		}
		if _, err := os.Stat("jobs.jsonl.checkpoint"); err == nil || len(stops) == 0 {
			if code, v, says := p.publishes(rt, line, nil); code != 0 || !v.Complete || int(v.Before+v.Published) != jobs {
				rt.Fatalf("the last call: code %d, %+v, %s", code, v, says)
			}
		}
		written, payloads, again := p.written(rt), map[string]bool{}, 0
		for id, all := range written {
			again += len(all) - 1
			payloads[all[0]] = true
			if len(slices.Compact(all)) != 1 || named && all[0] != fmt.Sprintf(`{"k":%q}`, id) {
				rt.Fatalf("job %s has the payloads %q", id, all)
			}
		}
		for i := range jobs {
			if text := fmt.Sprintf(`{"k":"u-%d"}`, i); !payloads[text] {
				rt.Fatalf("%s is not in the topic", text)
			}
		}
		if len(payloads) != jobs || len(written) != jobs || again > twice {
			rt.Fatalf("%d jobs of %d under %d ids, %d again, and %d may be", len(payloads), jobs, len(written), again, twice)
		}
	})
}
