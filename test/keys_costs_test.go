//go:build e2e

package test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// measureKeysCap: of a cap that does not let wait, all that is not delivered is capped. A delivery that failed gives its unit back.
func measureKeysCap(t *testing.T, table *speedTable) {
	const limit = 3
	s := newStack(t, stackOptions{partitions: 6, settings: "retry: {max_attempts: 5, initial: 200ms}"})
	s.withResults()
	s.campaign("c", 3000)
	s.keyQuota("c", "3/1d", "--max-wait", "0", "--count", "deliveries")
	s.receiver.failsOnce(func(a arrival) bool { return strings.HasPrefix(a.id, "fails-") })
	s.startThree()
	jobs, back := zipf("c", scaled(t, 60_000), scaled(t, 20_000)), 0
	for key := range scaled(t, 1000) {
		for range limit {
			jobs, back = append(jobs, keyed("c", "fails-"+strconv.Itoa(key), back)), back+1
		}
	}
	s.publish(jobs)
	settled := func() (n int) {
		s.each("results", func(string, delivery.Record) { n++ })
		return n
	}
	s.await(3*time.Minute, "an event of each job", func() bool { time.Sleep(time.Second); return settled() >= len(jobs) })
	outcomes, given := map[string]int{}, 0
	for id, list := range s.events() {
		outcomes[list[0].Outcome] += len(list)
		if strings.HasPrefix(id, "fails-") && list[0].Outcome == "delivered" {
			given++
		}
	}
	accepted, again := s.receiver.accepted("c")
	for key, list := range s.byKey() {
		delivered := 0
		for _, a := range list {
			delivered += 1 - a.status/500
		}
		if delivered > limit {
			t.Errorf("key %s was delivered %d jobs", key, delivered)
		}
	}
	note := fmt.Sprintf("%v, %d at the receiver", outcomes, accepted)
	table.add(t, "cap-settled", speedSample{Figure: float64(outcomes["delivered"] + outcomes["capped"]), Yardstick: float64(len(jobs)), Note: note})
	table.add(t, "cap-back", speedSample{Figure: float64(given), Yardstick: float64(back)})
	if accepted != outcomes["delivered"] || again > 0 || outcomes["delivered"]+outcomes["capped"] != len(jobs) || given != back {
		t.Errorf("%d jobs published: %s, %d of them again; of %d that failed once, %d were delivered", len(jobs), note, again, back, given)
	}
}

// measureKeysSpeed: the same jobs without a quota and under a cap that allows them all, in turns. One daemon sends them as fast as it can.
func measureKeysSpeed(t *testing.T, table *speedTable) {
	target, store := newCounter(t), testservices.FreshRedis(t)
	s := newStack(t, stackOptions{
		partitions: 6, lanes: 256, redis: store.Addr,
		sinks: fmt.Sprintf("  calls: {type: http, url: \"%s0\", max_in_flight: 256, timeout: 20s}\n  nowhere: {type: discard}", target.url),
	})
	const turns = 3 // each key has a job in each
	d := s.start("one")
	s.awaitWhole(1, d)
	time.Sleep(2 * time.Second)
	idle := d.idle(scaledTime(t, 3*time.Second))
	for _, sink := range []string{"calls", "nowhere"} {
		s.unlimited(sink, sink+"-plain")
		s.unlimited(sink, sink+"-keys")
		s.keyQuota(sink+"-keys", "3/1d", "--max-wait", "0")
		time.Sleep(time.Second) // until the daemon knows them
		jobs := scaled(t, 100_000)
		var seconds, micros [2]float64
		storeTime := [2]float64{}
		for range turns {
			for i, campaign := range []string{sink + "-plain", sink + "-keys"} {
				target.reset()
				before, spent := s.delivered(), storeMicros(t, store)
				count := func() int64 { return s.delivered() - before }
				if sink == "calls" {
					count = target.count
				}
				s.publishKeyed(campaign, jobs, speedPayload)
				p := d.through(jobs, idle, count, count)
				s.await(time.Minute, "the commits", func() bool { return s.delivered() >= before+int64(jobs) })
				seconds[i], micros[i] = seconds[i]+1/p.perSecond, micros[i]+p.micros()
				storeTime[i] += storeMicros(t, store) - spent
			}
		}
		if sink == "nowhere" {
			table.add(t, "speed-discard", speedSample{Figure: turns / seconds[1], Yardstick: turns / seconds[0]})
			continue
		}
		table.add(t, "speed-http", speedSample{Figure: turns / seconds[1], Yardstick: turns / seconds[0]})
		table.add(t, "speed-http-cpu", speedSample{Figure: micros[1] / turns, Yardstick: micros[0] / turns})
		table.add(t, "speed-redis", speedSample{Figure: (storeTime[1] - storeTime[0]) / float64(turns*jobs)})
		target.check(t, false)
	}
	endless(t, store)
}

// publishKeyed publishes jobs of a campaign, each with a key of its own.
func (s *stack) publishKeyed(campaign string, n int, payload []byte) {
	s.t.Helper()
	s.publishOf(campaign, n, payload, func(i int) kafka.Header { return header("pacer-key-to", fmt.Sprint("k", i)) })
}

// storeMicros is the CPU that a Redis has used, in microseconds.
func storeMicros(t *testing.T, store *testservices.Redis) float64 {
	t.Helper()
	return 1e6 * (infoOf(t, store, "cpu", "used_cpu_sys") + infoOf(t, store, "cpu", "used_cpu_user"))
}

// memoryOf is all memory that a Redis has allocated, in bytes.
func memoryOf(t *testing.T, store *testservices.Redis) float64 {
	t.Helper()
	return infoOf(t, store, "memory", "used_memory")
}

// measureKeysMemory: a third of JOBS keys get their first job of a day, then their second and third.
func measureKeysMemory(t *testing.T, table *speedTable) {
	const limit = 3
	s, _, store := newKeyStack(t)
	s.unlimited("nowhere", "c")
	s.keyQuota("c", "3/1d", "--max-wait", "0")
	d := s.start("one")
	s.awaitWhole(1, d)
	time.Sleep(2 * time.Second)
	keys, before := laneJobs(t, fullJobs)/limit, memoryOf(t, store)
	for job := 1; job <= limit; job++ {
		s.publishKeyed("c", keys, nil)
		s.await(time.Duration(keys/1000+60)*time.Second, "every job", func() bool { return s.delivered() >= int64(job*keys) })
		row := map[int]string{1: "memory-first", limit: "memory-full"}[job]
		if row == "" {
			continue
		}
		table.add(t, row, speedSample{
			Figure: (memoryOf(t, store) - before) / float64(keys), Note: fmt.Sprintf("%d keys, %d MiB of a daemon", keys, d.peakRSS()),
		})
	}
	if n := endless(t, store); n < keys {
		t.Errorf("%d of %d keys are in Redis", n, keys)
	}
}
