// Command yardstick is the least that a program has to do that sends, or reads, as pacer does: with -url it posts over and
// over, otherwise it reads all records of a topic. It prints what it has done, and used, as JSON. It imports nothing of
// pacer, which replaces a part of kafka-go.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// loop is what is asked for.
type loop struct {
	url     string
	calls   int           // in flight
	payload []byte        // of each request
	warm    time.Duration // until it is measured
	last    time.Duration // for how long

	broker, topic string
	partitions    int
}

// result is what a loop did while it was measured.
type result struct {
	Jobs       int64   `json:"jobs"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"` // user and system
	Mallocs    float64 `json:"mallocs"`
}

func main() {
	var l loop
	size := 0
	flag.StringVar(&l.url, "url", "", "of the requests")
	flag.IntVar(&l.calls, "calls", 64, "requests in flight")
	flag.IntVar(&size, "bytes", 200, "of a request")
	flag.DurationVar(&l.warm, "warm", time.Second, "until it is measured")
	flag.DurationVar(&l.last, "last", 5*time.Second, "how long it is measured")
	flag.StringVar(&l.broker, "broker", "", "of the topic")
	flag.StringVar(&l.topic, "topic", "", "that is read")
	flag.IntVar(&l.partitions, "partitions", 1, "of the topic")
	flag.Parse()
	l.payload = bytes.Repeat([]byte("."), size)
	run := l.read
	if l.url != "" {
		run = l.send
	}
	r, err := run()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measured returns a function that tells what this process has done and used since now; done counts.
func measured(done *atomic.Int64) func() result {
	spent := func() result {
		var usage syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // of itself it cannot fail
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		return result{Jobs: done.Load(), CPUSeconds: cpu.Seconds(), Mallocs: float64(memory.Mallocs)}
	}
	before, began := spent(), time.Now()
	return func() result {
		seconds, now := time.Since(began).Seconds(), spent()
		return result{
			Jobs: now.Jobs - before.Jobs, Seconds: seconds, CPUSeconds: now.CPUSeconds - before.CPUSeconds, Mallocs: now.Mallocs - before.Mallocs,
		}
	}
}

// send posts the payload over and over, with as many headers as pacer sends.
func (l *loop) send() (result, error) {
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConns: l.calls, MaxIdleConnsPerHost: l.calls, DisableCompression: true,
	}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sent atomic.Int64
	var senders sync.WaitGroup
	failures := make(chan error, l.calls)
	for range l.calls {
		senders.Go(func() {
			for {
				err := l.post(ctx, client)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					failures <- err
					return
				}
				sent.Add(1)
			}
		})
	}
	time.Sleep(l.warm)
	end := measured(&sent)
	time.Sleep(l.last)
	r := end()
	cancel()
	senders.Wait()
	close(failures)
	return r, <-failures
}

func (l *loop) post(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(l.payload))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Webhook-Id", "yardstick")
	req.Header.Set("X-Key", "yardstick")
	req.Header.Set("Pacer-Campaign", "yardstick")
	req.Header.Set("Pacer-Attempt", "1")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

// read reads every record of a topic, all partitions at once.
func (l *loop) read() (result, error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(l.broker), Transport: transport}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var count atomic.Int64
	failures := make(chan error, l.partitions)
	end := measured(&count)
	for p := range l.partitions {
		go func() { failures <- l.readPartition(ctx, client, p, &count) }()
	}
	var err error
	for range l.partitions {
		err = errors.Join(err, <-failures)
	}
	return end(), err
}

func (l *loop) readPartition(ctx context.Context, client *kafka.Client, partition int, count *atomic.Int64) error {
	for next, end := int64(0), int64(1); next < end; {
		answer, err := client.Fetch(ctx, &kafka.FetchRequest{
			Topic: l.topic, Partition: partition, Offset: next, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond,
		})
		if err == nil {
			err = answer.Error
		}
		if err != nil {
			return err
		}
		end = answer.HighWatermark
		for {
			r, err := answer.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if r.Offset < next {
				continue
			}
			if _, err := protocol.ReadAll(r.Value); err != nil {
				return err
			}
			next = r.Offset + 1
			count.Add(1)
		}
	}
	return nil
}
