//go:build e2e

package test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// measureKeysZipf: a backlog of 100,000 keys, of which the first have far more jobs than their limits let go. Others go in their place.
func measureKeysZipf(t *testing.T, table *speedTable) {
	const perSecond, beside = 2000, 200
	settle, length := scaledTime(t, 5*time.Second), scaledTime(t, 25*time.Second)
	s, sent, store := newKeyStack(t)
	s.campaigns("noted", "active", []string{"c"}, func(int) float64 { return perSecond })
	s.campaigns("noted", "active", []string{"plain"}, func(int) float64 { return beside })
	s.keyQuota("c", "1/1s,3/1m")
	daemons := s.startThree()
	jobs := zipf("c", max(40_000, scaled(t, 400_000)), max(20_000, scaled(t, 100_000)))
	free := firsts(jobs)
	s.publish(append(ofCampaign("plain", 0, int(beside*(settle+length+10*time.Second).Seconds())), jobs...))
	s.await(30*time.Second, "the first job", func() bool { return len(sent.read().at) > 0 })
	from := time.Now().Add(settle)
	if most := perSecond * (settle + length).Seconds(); float64(free) < most {
		t.Fatalf("%d jobs of free keys, and %.0f can be sent", free, most)
	}
	time.Sleep(time.Until(from.Add(length)))
	note := forfeitedBy(daemons)
	time.Sleep(scaledTime(t, 60*time.Second)) // until jobs of the first minute have had their second turn
	sent.read()
	table.add(t, "zipf-rate", speedSample{Figure: float64(sent.between("c", from, length, "")) / length.Seconds(), Yardstick: perSecond, Note: note})
	table.add(t, "zipf-plain", speedSample{Figure: float64(sent.between("plain", from, length, "")) / length.Seconds(), Yardstick: beside})
	table.add(t, "zipf-second", speedSample{Figure: sent.most(1, time.Second), Note: fmt.Sprintf("%d jobs of %d keys were sent", len(sent.at), len(sent.byKey))})
	table.add(t, "zipf-minute", speedSample{Figure: sent.most(3, time.Minute), Note: forfeitedBy(daemons)})
	endless(t, store)
	sent.notAgain()
}

// measureKeysStream: two campaigns get the same stream, one of them under the quota. A job of a key that is free must not be later than the
// others.
func measureKeysStream(t *testing.T, table *speedTable) {
	const perSecond, step = 2000, 20 * time.Millisecond
	const each = 900 * int(step) / int(time.Second)
	s, sent, _ := newKeyStack(t)
	s.campaigns("noted", "active", []string{"c", "plain"}, func(int) float64 { return perSecond })
	s.keyQuota("c", "1/1s,3/1m")
	s.startThree()
	stream := zipf("c", max(6000, scaled(t, 900*60)), 100_000)
	published := map[string]int64{}
	ticks := time.NewTicker(step)
	defer ticks.Stop()
	for i := 0; i+each <= len(stream); i += each {
		<-ticks.C
		jobs := stream[i : i+each]
		for n, j := range stream[i : i+each] {
			j.campaign, j.id = "plain", plainID(i+n)
			jobs = append(jobs[:len(jobs):len(jobs)], j)
		}
		now := time.Now().UnixMicro()
		for _, j := range jobs {
			published[j.id] = now
		}
		s.publish(jobs)
	}
	time.Sleep(3 * time.Second)
	sent.read()
	sent.most(1, time.Second)
	sent.most(3, time.Minute)
	var late, plain []float64
	warm := published[stream[0].id] + (2 * time.Second).Microseconds()
	for i, j := range stream {
		if at := sent.at[plainID(i)]; at > 0 && published[j.id] > warm {
			plain = append(plain, float64(at-published[j.id])/1e3)
		}
		if published[j.id] <= warm || !sent.free(stream[:i], j, published) {
			continue
		}
		if at := sent.at[j.id]; at > 0 {
			late = append(late, float64(at-published[j.id])/1e3)
		} else {
			t.Errorf("%s was not sent, though its key was free", j.id)
		}
	}
	table.add(t, "stream-late", speedSample{
		Figure: max(0, highest(late, 0.99)-highest(plain, 0.99)),
		Note: fmt.Sprintf("half of %d jobs of free keys within %.1f ms, 99 %% within %.1f ms; without keys %.1f and %.1f ms", len(late), middle(late),
			highest(late, 0.99), middle(plain), highest(plain, 0.99)),
	})
}

func plainID(n int) string { return fmt.Sprint("plain-", n) }

// free reports whether the windows allowed a job when it was published, and no job of its key waited then. before are the jobs of the stream
// that were published before.
func (k *keySends) free(before []job, j job, published map[string]int64) bool {
	key, at := keyOf(j.id), published[j.id]
	if k.earlier == nil {
		k.earlier = map[string][]string{}
	}
	for ; k.seen < len(before); k.seen++ {
		b := before[k.seen]
		k.earlier[keyOf(b.id)] = append(k.earlier[keyOf(b.id)], b.id)
	}
	second, minute := 0, 0
	for _, id := range k.earlier[key] {
		sentAt, ok := k.at[id]
		if !ok || sentAt >= at {
			return false
		}
		if at-sentAt < (time.Second + 40*time.Millisecond).Microseconds() {
			second++
		}
		if at-sentAt < (time.Minute + 40*time.Millisecond).Microseconds() {
			minute++
		}
	}
	return second == 0 && minute < 3
}

// measureKeysBusy: every second job is of one key. They wait, and the others are not delayed.
func measureKeysBusy(t *testing.T, table *speedTable) {
	const perSecond = 2000
	settle, length := scaledTime(t, 5*time.Second), max(10*time.Second, scaledTime(t, 55*time.Second))
	s, sent, store := newKeyStack(t)
	s.campaigns("noted", "active", []string{"c"}, func(int) float64 { return perSecond })
	s.keyQuota("c", "1/1s")
	daemons := s.startThree()
	others := int(perSecond * (settle + length + 3*time.Second).Seconds())
	payload := []byte(strings.Repeat("0123456789", 100))
	for first := 0; first < others; first += 20_000 {
		var jobs []job
		for i := first; i < min(others, first+20_000); i++ {
			jobs = append(jobs, keyed("c", "k"+strconv.Itoa(i), i), keyed("c", "busy", i))
		}
		for i := range jobs {
			jobs[i].payload = payload
		}
		s.publish(jobs)
	}
	s.await(30*time.Second, "the first job", func() bool { return len(sent.read().at) > 0 })
	from := time.Now().Add(settle)
	time.Sleep(time.Until(from.Add(length / 4)))
	early := largest(daemons, (*daemon).resident)
	time.Sleep(time.Until(from.Add(length)))
	late := largest(daemons, (*daemon).resident)
	sent.read()
	all, free := sent.between("c", from, length, ""), sent.between("c", from, length, "busy")
	seconds := length.Seconds()
	table.add(t, "busy-others", speedSample{Figure: float64(free) / seconds, Yardstick: perSecond, Note: forfeitedBy(daemons)})
	table.add(t, "busy-used", speedSample{Figure: float64(all-free) / seconds, Yardstick: 1 / 1.04, Note: "windows are 40 ms longer"})
	most, held := 0, others-len(sent.byKey["busy"])
	s.each("timer.", func(_ string, r delivery.Record) {
		hops, _ := strconv.Atoi(r.Header(delivery.HeaderTimerHops))
		most = max(most, hops)
	})
	table.add(t, "busy-timers", speedSample{
		Figure: float64(s.everWritten("timer.")) / float64(held), Note: fmt.Sprintf("%d jobs wait, %d in lanes at all", held, s.everWritten("lanes")),
	})
	table.add(t, "busy-timers-most", speedSample{Figure: float64(most)})
	table.add(t, "busy-memory", speedSample{Figure: late, Yardstick: early, Note: fmt.Sprintf("%d MiB at most", peakOf(daemons))})
	sent.most(1, time.Second)
	endless(t, store)
	sent.notAgain()
}

func largest(daemons []*daemon, of func(*daemon) float64) (most float64) {
	for _, d := range daemons {
		most = max(most, of(d))
	}
	return most
}

func peakOf(daemons []*daemon) int {
	return int(largest(daemons, func(d *daemon) float64 { return float64(d.peakRSS()) }))
}

// measureKeysPause: jobs whose turns come while the campaign is paused do not come together after it; then a daemon is killed.
func measureKeysPause(t *testing.T, table *speedTable) {
	const perSecond, settle = 500, 2 * time.Second
	pause := time.Minute
	if text := os.Getenv("PAUSE"); text != "" {
		var err error
		if pause, err = time.ParseDuration(text); err != nil || pause < time.Second {
			t.Fatalf("PAUSE=%s: want a duration of at least 1s", text)
		}
	}
	length := max(5*time.Second, scaledTime(t, 15*time.Second))
	s := newStack(t, stackOptions{partitions: 6, lanes: 64})
	s.campaign("c", perSecond)
	s.keyQuota("c", "1/1s")
	daemons := s.startThree()
	s.publish(zipf("c", 60_000, 20_000))
	s.await(30*time.Second, "some jobs", func() bool { return s.receiver.count("") > 10*perSecond })
	s.pause(pause)
	from := s.receiver.now() + settle.Microseconds()
	time.Sleep(settle + length)
	table.add(t, "pause-rate", speedSample{
		Figure: float64(s.between("c", from, from+length.Microseconds())) / length.Seconds(), Yardstick: perSecond, Note: forfeitedBy(daemons),
	})
	open := s.buffered()
	daemons[0].kill()
	time.Sleep(time.Second)
	daemons[0].launch()
	s.awaitWhole(3, daemons...)
	time.Sleep(length)
	over, blur := 0, s.receiver.blur()
	for key, list := range s.byKey() {
		if tooMany(list, 1, time.Second, blur) > 0 {
			over++
			t.Logf("key %s was sent %d jobs in a second", key, rolling(list, time.Second))
		}
	}
	table.add(t, "pause-second", speedSample{Figure: float64(over), Note: fmt.Sprintf("%d jobs of %d keys", s.receiver.count(""), len(s.byKey()))})
	if over > 0 {
		t.Errorf("%d keys were sent more than their limit", over)
	}
	if _, again := s.receiver.accepted(""); again > open {
		t.Errorf("%d jobs were sent twice, and %d were in flight", again, open)
	}
}

// measureKeysResume: keys whose jobs wait in a line are sent what their limits allow after a pause that is longer than their windows.
func measureKeysResume(t *testing.T, table *speedTable) {
	const keys, limit, span, pause, settle, length = 40, 2, 20 * time.Second, 30 * time.Second, 5 * time.Second, time.Minute
	s := newStack(t, stackOptions{partitions: 6})
	s.campaign("c", 500)
	s.keyQuota("c", "2/20s")
	s.startThree()
	var jobs []job
	for i := range keys * 25 {
		jobs = append(jobs, keyed("c", fmt.Sprint("k", i%keys), i))
	}
	s.publish(jobs)
	s.await(time.Minute, "two jobs of each key", func() bool { return s.receiver.count("") >= keys*limit })
	time.Sleep(5 * time.Second)
	s.pause(pause)
	from := s.receiver.now() + settle.Microseconds()
	time.Sleep(settle + length)
	table.add(t, "resume", speedSample{
		Figure: float64(s.between("c", from, from+length.Microseconds())) / length.Seconds(), Yardstick: keys * limit / span.Seconds(),
	})
	s.keysWithin(limit, span)
}

// measureKeysThrottled: the destination asks to wait for one recipient. Its jobs wait on all daemons, and no others do.
func measureKeysThrottled(t *testing.T, table *speedTable) {
	const perStep, step, wait, answer = 20, 100 * time.Millisecond, 30 * time.Second, 300 * time.Millisecond
	s := newStack(t, stackOptions{partitions: 6})
	s.campaign("c", 1000)
	s.keyQuota("c", "100/1s")
	s.startThree()
	begun, published, asked := s.receiver.now(), 0, int64(0) // asked: when the answer left
	s.receiver.answersAfter("", answer)
	s.receiver.answer = func(a arrival) (int, time.Duration) {
		if asked == 0 && keyOf(a.id) == "slow" && a.at > begun+(8*time.Second).Microseconds() {
			asked = s.receiver.now() + answer.Microseconds()
			return http.StatusTooManyRequests, wait
		}
		return http.StatusOK, 0
	}
	ticks := time.NewTicker(step)
	defer ticks.Stop()
	for s.receiver.now() < begun+(50*time.Second).Microseconds() {
		<-ticks.C
		var jobs []job
		for range perStep {
			jobs = append(jobs, keyed("c", "k"+strconv.Itoa(published), 0))
			published++
		}
		s.publish(append(jobs, keyed("c", "slow", published), keyed("c", "slow", published+1)))
	}
	ended := s.receiver.now()
	time.Sleep(2 * time.Second)
	next, others := int64(0), 0
	const inFlight = 50 * time.Millisecond // on the way when the answer came
	for _, a := range s.receiver.arrivals("") {
		switch slow := keyOf(a.id) == "slow"; {
		case !slow && a.at >= asked && a.at < ended:
			others++
		case slow && next == 0 && a.at > asked+inFlight.Microseconds():
			next = a.at
		}
	}
	if asked == 0 || next == 0 {
		t.Fatalf("asked at %d µs, next at %d µs", asked, next)
	}
	table.add(t, "throttled-key", speedSample{Figure: float64(next-asked) / 1e6, Note: fmt.Sprintf("jobs within %s of the answer aside", inFlight)})
	if next-asked < wait.Microseconds() {
		t.Errorf("a job of the key arrived after %.2f s", float64(next-asked)/1e6)
	}
	table.add(t, "throttled-others", speedSample{
		Figure: float64(others) / (float64(ended-asked) / 1e6), Yardstick: float64(published) / (float64(ended-begun) / 1e6),
	})
}
