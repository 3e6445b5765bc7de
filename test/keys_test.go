package test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// keyed returns a job whose id begins with its key.
func keyed(campaign, key string, n int) job {
	return job{campaign: campaign, id: fmt.Sprintf("%s/%d", key, n), headers: []kafka.Header{header("pacer-key-to", key)}}
}

// byKey returns the requests of each key, in order of time.
func (s *stack) byKey() map[string][]arrival {
	keys := map[string][]arrival{}
	for _, a := range s.receiver.arrivals("") {
		key := keyOf(a.id)
		keys[key] = append(keys[key], a)
	}
	return keys
}

// keyOf returns the key in the id of a job that keyed made.
func keyOf(id string) string {
	key, _, _ := strings.Cut(id, "/")
	return key
}

// pause pauses all campaigns for a while.
func (s *stack) pause(lasts time.Duration) {
	s.t.Helper()
	s.sql(`UPDATE pacer.campaigns SET status = 'paused'`)
	time.Sleep(lasts)
	s.sql(`UPDATE pacer.campaigns SET status = 'active'`)
}

// keysWithin asserts that no key was sent more than a window allows.
func (s *stack) keysWithin(limit int, span time.Duration) {
	s.t.Helper()
	blur := s.receiver.blur()
	for key, list := range s.byKey() {
		if n := tooMany(list, limit, span, blur); n > 0 {
			s.t.Errorf("key %s: %d jobs in %s, and %d are allowed; %d requests begin such a span", key, rolling(list, span), span, limit, n)
		}
	}
}

// TestKeysHaveTheirWindows: three daemons send jobs of many keys, half of them of one key; one is killed, and the campaign pauses meanwhile.
// No key is sent more than its windows allow, and the busy one delays no other.
func TestKeysHaveTheirWindows(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 6})
	s.run("quota", "set", "chat", "--per", "to", "--window", "1/1s,5/20s")
	s.campaign("c", 200)
	s.under("chat", "c")
	const others = 400
	var jobs []job
	for i := range others {
		jobs = append(jobs, keyed("c", fmt.Sprint("k", i/2), i), keyed("c", "busy", i))
	}
	rand.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	one := s.fleet("one", "two", "three")[0]
	s.publish(jobs)
	s.await(20*time.Second, "explain to name the busy key", func() bool {
		out := s.run("explain", "c")
		return strings.Contains(out, "waiting for keys") && strings.Contains(out, "by quota chat; most often lately: busy (")
	})
	s.await(20*time.Second, "the turns of the busy key", func() bool { // later its line may begin anew: jobs that have had turns come when they are due
		out := s.run("key", "show", "chat", "busy")
		return strings.Contains(out, "window 5/20s") && strings.Contains(out, "turns reserved until")
	})
	s.await(20*time.Second, "a quarter of the others", func() bool { return s.receiver.count("") > others/4 })
	one.kill()
	s.pause(time.Second)
	s.await(40*time.Second, "all jobs of the other keys", func() bool {
		distinct := map[string]bool{}
		for _, a := range s.receiver.arrivals("") {
			distinct[a.id] = true
		}
		maps.DeleteFunc(distinct, func(id string, _ bool) bool { return strings.HasPrefix(id, "busy") })
		return len(distinct) == others
	})
	s.await(time.Minute, "jobs of the busy key", func() bool { return len(s.byKey()["busy"]) > 2 })
	s.keysWithin(1, time.Second)
	s.keysWithin(5, 20*time.Second)
}

// TestACapSkips: what a recipient gets beyond its cap is neither sent nor lost, and an event says which quota and until when. A job without
// the key is a dead letter, and every key in Redis has an end.
func TestACapSkips(t *testing.T) {
	t.Parallel()
	store := testservices.FreshRedis(t)
	s := newStack(t, stackOptions{partitions: 4, redis: store.Addr})
	s.withResults()
	s.run("quota", "set", "cap", "--per", "to", "--window", "3/1d", "--max-wait", "0", "--count", "deliveries")
	s.run("quota", "set", "cap", "--key", "vip", "--window", "5/1d")
	s.campaign("c", 500)
	s.under("cap", "c")
	jobs := []job{{campaign: "c", id: "without"}}
	for i := range 60 {
		jobs = append(jobs, keyed("c", fmt.Sprint("k", i%10), i))
	}
	for i := range 6 {
		jobs = append(jobs, keyed("c", "vip", i))
	}
	d := s.started("one")
	s.publish(jobs)
	outcomes := map[string]int{}
	s.await(30*time.Second, "an event of each job", func() bool {
		clear(outcomes)
		for _, list := range s.events() {
			e := list[0]
			outcomes[e.Outcome]++
			if key, _, keyed := strings.Cut(e.JobID, "/"); keyed && e.Keys["to"] != key {
				t.Errorf("the keys of %s: %v", e.JobID, e.Keys)
			}
			if e.Outcome == "capped" && (e.Quota != "cap" || e.FreeAt.Before(time.Now().Add(23*time.Hour))) {
				t.Errorf("%+v", e)
			}
		}
		return outcomes["delivered"]+outcomes["capped"]+outcomes["dead"] == len(jobs)
	})
	if want := (map[string]int{"delivered": 35, "capped": 31, "dead": 1}); !maps.Equal(outcomes, want) {
		t.Errorf("%v, want %v", outcomes, want)
	}
	for key, at := range s.byKey() {
		if len(at) > 3 && key != "vip" || len(at) > 5 {
			t.Errorf("%s was sent %d jobs", key, len(at))
		}
	}
	if out := s.run("dead", "list"); !strings.Contains(out, "missing_key") || !strings.Contains(out, "pacer-key-to") {
		t.Error(out)
	}
	if n := endless(t, store); n < 11 {
		t.Errorf("%d keys", n)
	}
	d.stop()
}

// endless fails the test if a hash of keys in the store lives for ever, and returns the number of keys.
func endless(t *testing.T, store *testservices.Redis) (keys int) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: store.Addr})
	defer func() { _ = client.Close() }()
	ctx, without := context.Background(), 0
	for cursor := uint64(0); ; {
		names, next, err := client.Scan(ctx, cursor, "*}k:*", 5000).Result()
		noError(t, err)
		answers, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range names {
				p.Do(ctx, "PTTL", name)
				p.Do(ctx, "HLEN", name)
			}
			return nil
		})
		noError(t, err)
		for i := 0; i < len(answers); i += 2 {
			ttl, err := answers[i].(*redis.Cmd).Int64()
			n, _ := answers[i+1].(*redis.Cmd).Int64()
			if keys += int(n); err != nil || ttl == -1 {
				without += int(n)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	t.Logf("%d keys in Redis, %d without an end", keys, without)
	if without > 0 {
		t.Errorf("%d keys live for ever", without)
	}
	return keys
}

// TestAHeldKeyWaits until it is released, and no other does.
func TestAHeldKeyWaits(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2})
	s.run("quota", "set", "hook", "--per", "to", "--window", "100/1s")
	s.campaign("c", 200)
	s.under("hook", "c")
	if out := s.run("key", "hold", "hook", "shop-7", "--until", "1h"); !strings.Contains(out, "held until") {
		t.Error(out)
	}
	s.started("one")
	s.publish([]job{keyed("c", "shop-7", 1), keyed("c", "shop-8", 1)})
	s.await(20*time.Second, "the other one's job, and the held one's in a timer", func() bool {
		waiting := 0
		s.each("timer.", func(string, delivery.Record) { waiting++ })
		return waiting == 1 && len(s.byKey()["shop-8"]) == 1
	})
	if list := s.byKey()["shop-7"]; len(list) > 0 {
		t.Errorf("%d jobs of the held key were sent", len(list))
	}
	s.run("key", "release", "hook", "shop-7")
	s.await(20*time.Second, "a job after the release", func() bool {
		s.publish([]job{keyed("c", "shop-7", 2)}) // one that is read before the daemon knows of the release waits
		return len(s.byKey()["shop-7"]) > 0
	})
	for _, bad := range [][]string{
		{"quota", "set", "hook", "--per", "A b"}, {"quota", "set", "other", "--per", "to", "--window", "0/1s"}, {"quota", "set", "plain", "--max-wait", "1h"},
		{"key", "hold", "hook", strings.Repeat("x", 300)}, {"key", "show", "nothing", "x"}, {"key", "hold", "hook", "x", "--until", "soon"},
	} {
		if out, err := s.try(bad...); err == nil || strings.Count(strings.TrimSpace(out), "\n") > 0 {
			t.Errorf("%v: %v %s", bad, err, out)
		} else {
			t.Log(strings.TrimSpace(out))
		}
	}
}
