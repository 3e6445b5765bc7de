//go:build e2e

package test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// runs is how often each figure is taken; its median counts, since the machine may be shared.
const runs = 3

// median of figures, each of a run of its own on a stack of its own.
func median(t *testing.T, name, unit string, measure func(t *testing.T) float64) float64 {
	t.Helper()
	var all []float64
	for i := range runs {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) { all = append(all, measure(t)) })
	}
	if len(all) < runs {
		t.Fatalf("%s: a run did not finish", name)
	}
	slices.Sort(all)
	t.Logf("FIGURE  %-60s %8.1f %s  (%.1f to %.1f)", name, all[runs/2], unit, all[0], all[runs-1])
	return all[runs/2]
}

// TestFigureRateChange: from the commit of an UPDATE to the new spacing at the receiver, median of 20 changes between 50/s
// and 500/s, on two daemons, for jobs that wait in a lane.
func TestFigureRateChange(t *testing.T) {
	ms := median(t, "rate change to new spacing, median of 20", "ms", func(t *testing.T) float64 {
		s := newStack(t, stackOptions{partitions: 4})
		s.startTwo()
		delays := s.rateChanges(20)
		slices.Sort(delays)
		s.rateIsNeverAbove("c", 500)
		return float64(delays[len(delays)/2].Microseconds()) / 1e3
	})
	if ms > 100 {
		t.Errorf("a change shows after %.1f ms, want at most 100", ms)
	}
}

// TestFigureLatency: from the publication of lone jobs, 200 a second and far below the rate, to their arrival, beside a bare consumer of the same
// records that posts at once. The publisher lingers for 5 ms.
func TestFigureLatency(t *testing.T) {
	var slowest []float64
	ratio := median(t, "lone jobs at 200/s, half of them: times that of a bare consumer", "x", func(t *testing.T) float64 {
		s := newStack(t, stackOptions{partitions: 4})
		s.campaign("c", 5000)
		s.started("one")
		s.consumeBarely(4)
		own, bare := s.lone(2000)
		t.Logf("half within %.1f ms, 99 %% within %.1f ms; the bare consumer: %.1f and %.1f ms",
			own[len(own)/2], own[len(own)*99/100], bare[len(bare)/2], bare[len(bare)*99/100])
		slowest = append(slowest, own[len(own)*99/100]/bare[len(bare)*99/100])
		return own[len(own)/2] / bare[len(bare)/2]
	})
	slices.Sort(slowest)
	t.Logf("FIGURE  99 %% of them: times that of a bare consumer %.1f x", slowest[len(slowest)/2])
	if ratio > 1.5 || slowest[len(slowest)/2] > 2 {
		t.Error("want at most 1.5 and 2 times")
	}
}

// consumeBarely posts each record of ingress to the receiver, as the campaign "bare".
func (s *stack) consumeBarely(partitions int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for i := range partitions {
		r := kafka.NewReader(kafka.ReaderConfig{
			Brokers: s.brokers, Topic: s.ingress, Partition: i, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second, ReadBatchTimeout: time.Minute,
		})
		s.t.Cleanup(func() { _ = r.Close() })
		go func() {
			for {
				m, err := r.ReadMessage(s.t.Context())
				if err != nil {
					return
				}
				go func() {
					q, _ := http.NewRequest(http.MethodPost, s.receiver.url, bytes.NewReader(m.Value))
					q.Header.Set("pacer-campaign", "bare")
					q.Header.Set("webhook-id", string(m.Headers[1].Value))
					if resp, err := client.Do(q); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}()
			}
		}()
	}
}

// lone publishes a job every 5 ms, and returns how long the jobs took to arrive, in order, in milliseconds: by pacer, and by the bare consumer.
func (s *stack) lone(n int) (own, bare []float64) {
	w := &kafka.Writer{
		Addr: kafka.TCP(s.brokers...), Topic: s.ingress, Balancer: &kafka.RoundRobin{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, Async: true, Transport: s.client.Transport,
	}
	defer func() { _ = w.Close() }()
	published := map[string]int64{}
	const warm = 100 // that are not counted
	for i := range warm + n {
		id := fmt.Sprint("lone-", i)
		if i == warm {
			s.await(30*time.Second, "the first jobs", func() bool { return s.receiver.count("c") == warm && s.receiver.count("bare") == warm })
		}
		published[id] = s.receiver.now()
		noError(s.t, w.WriteMessages(s.t.Context(), job{campaign: "c", id: id}.message()))
		time.Sleep(5 * time.Millisecond)
	}
	s.await(10*time.Second, "the jobs", func() bool { return s.receiver.count("c") == warm+n && s.receiver.count("bare") == warm+n })
	took := func(campaign string) (list []float64) {
		for _, a := range s.receiver.arrivals(campaign)[warm:] {
			list = append(list, float64(a.at-published[a.id])/1e3)
		}
		slices.Sort(list)
		return list
	}
	return took("c"), took("bare")
}

// TestFigureSharedQuota: three campaigns at 200/s each under 40/1s, 150/5s and 400/20s, on three daemons for three spans of the longest
// window, which is the tightest. A log window counts each unit 95 ms longer, as long as it may be sent. A sliding one repeats after sixty
// of its buckets, which are 20.13 s. Units of a log leave one by one, and who asks in that moment gets them, so shares are less even on a
// busy machine.
func TestFigureSharedQuota(t *testing.T) {
	const jobs, ideal = 3*400 + 1, 60 // seconds, to the first one of the fourth span
	for algorithm, want := range map[string]struct{ used, off float64 }{"sliding": {99, 0.02}, "log": {99, 0.05}} {
		t.Run(algorithm, func(t *testing.T) {
			var offs []float64
			used := median(t, "a shared quota, "+algorithm+": use of its tightest window in a minute", "%", func(t *testing.T) float64 {
				s := newStack(t, stackOptions{partitions: 7}) // each of which has jobs of all three
				took, off := s.sharedQuota(jobs, algorithm, window{40, time.Second}, window{150, 5 * time.Second}, window{400, 20 * time.Second})
				offs = append(offs, off)
				return 100 * ideal / took.Seconds()
			})
			slices.Sort(offs)
			off := offs[runs/2]
			t.Logf("FIGURE  a campaign is at most %.1f %% off its third (%.1f to %.1f)", 100*off, 100*offs[0], 100*offs[runs-1])
			if used < want.used || off > want.off {
				t.Errorf("%.1f %% used, want at least %.1f; %.1f %% off a third, want at most %.0f", used, want.used, 100*off, 100*want.off)
			}
		})
	}
}

// TestFigureMemory: a million jobs wait in Kafka for slow campaigns.
func TestFigureMemory(t *testing.T) {
	newStack(t, stackOptions{partitions: 6}).manyWaiting(1_000_000)
}
