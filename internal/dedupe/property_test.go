package dedupe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/testservices"
)

// world is a few daemons around a ledger whose requests may arrive late, without an answer, or never, and whose daemons
// may die at any time. It runs the real script, and knows who is sending what.
type world struct {
	t       *rapid.T
	store   *miniredis.Miniredis
	client  redis.UniversalClient
	now     time.Duration
	nodes   []string // of the daemons; a restart makes a new one
	tokens  int
	sending map[send]flight
	marked  map[string]time.Duration // by job: until when it is surely marked
	late    []request                // on their way
}

// send is a job in a daemon.
type send struct {
	node, job string
}

// flight is a call of a sink.
type flight struct {
	token string
	until time.Duration // its timeout
}

// request is an entry and who sends it.
type request struct {
	node, job string
	entry     *entry
}

const (
	sinkTimeout = 5 * time.Second
	markTTL     = 30 * time.Second
)

// execute lets the script work off one entry.
func (w *world) execute(r request) int64 {
	s := &shard{client: w.client, tag: "{p}job:", node: r.node}
	answers, err := execute(context.Background(), s.client, s.tag, s.node, []*entry{r.entry})
	if err != nil {
		w.t.Fatal(err)
	}
	if r.entry.what == markEntry {
		w.marked[r.job] = w.now + markTTL
	}
	return answers[0]
}

// request sends what is executed and answered now, only executed, executed later, or never.
func (w *world) request(r request) (answer int64, answered bool) {
	switch rapid.SampledFrom([]string{"answered", "answered", "answered", "late", "late", "executed", "lost"}).Draw(w.t, r.entry.what) {
	case "answered":
		return w.execute(r), true
	case "executed":
		w.execute(r)
	case "late":
		w.late = append(w.late, r)
	}
	return 0, false
}

func (w *world) token(node string) string {
	w.tokens++
	return fmt.Sprintf("%s%08d", node, w.tokens)
}

// lease is a daemon that wants to send a job, as it may when it is not sending it.
func (w *world) lease(node, job string) {
	if _, busy := w.sending[send{node, job}]; busy {
		return
	}
	e := newEntry(leaseEntry, idOf("c", job, ""), w.token(node), sinkTimeout+leaseMargin)
	if a, ok := w.request(request{node, job, e}); !ok || a != leased {
		return
	}
	for other := range w.sending {
		if other.job == job {
			w.t.Fatalf("%s may send %s while %s sends it", node, job, other.node)
		}
	}
	if until := w.marked[job]; until > w.now {
		w.t.Fatalf("%s may send %s, which was delivered and is to be remembered for %s more", node, job, until-w.now)
	}
	w.sending[send{node, job}] = flight{e.token, w.now + sinkTimeout}
}

// answer is what the sink says to one of the calls. A mark is sent until it is acknowledged.
func (w *world) answer() {
	calls := make([]send, 0, len(w.sending))
	for s := range w.sending {
		calls = append(calls, s)
	}
	if len(calls) == 0 {
		return
	}
	slices.SortFunc(calls, func(a, b send) int { return strings.Compare(a.node+a.job, b.node+b.job) })
	s := rapid.SampledFrom(calls).Draw(w.t, "call")
	token := w.sending[s].token
	if rapid.Bool().Draw(w.t, "delivered") {
		for acknowledged := false; !acknowledged; {
			_, acknowledged = w.request(request{s.node, s.job, newEntry(markEntry, idOf("c", s.job, ""), "", markTTL)})
		}
	} else {
		w.request(request{s.node, s.job, newEntry(releaseEntry, idOf("c", s.job, ""), token, 0)})
	}
	delete(w.sending, s)
}

// crash ends a daemon and starts another in its place.
func (w *world) crash(k int) {
	for s := range w.sending {
		if s.node == w.nodes[k] {
			delete(w.sending, s)
		}
	}
	w.tokens++
	w.nodes[k] = fmt.Sprintf("%08d", w.tokens)
}

// pass lets time pass; calls that time out end, and their daemons hear nothing.
func (w *world) pass(d time.Duration) {
	w.now += d
	w.store.FastForward(d)
	for s, f := range w.sending {
		if f.until <= w.now {
			delete(w.sending, s)
		}
	}
}

// Whatever is lost, late or dies: no job is sent by two at once, and none is sent while it is marked.
func TestNoInterleavingSendsTwice(t *testing.T) {
	store := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: store.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	rounds := 10 // what goes wrong takes many steps in the right order
	if testservices.Raced {
		rounds = 1
	}
	for range rounds {
		rapid.Check(t, func(t *rapid.T) { play(t, store, client) })
	}
}

// play lets anything happen.
func play(t *rapid.T, store *miniredis.Miniredis, client redis.UniversalClient) {
	store.FlushDB()
	w := &world{
		t: t, store: store, client: client, nodes: []string{"node-001", "node-002", "node-003"},
		sending: map[send]flight{}, marked: map[string]time.Duration{},
	}
	job := rapid.SampledFrom([]string{"a", "a", "a", "b"}) // few, so that daemons meet
	node := rapid.IntRange(0, len(w.nodes)-1)
	t.Repeat(map[string]func(*rapid.T){
		"lease":  func(t *rapid.T) { w.lease(w.nodes[node.Draw(t, "node")], job.Draw(t, "job")) },
		"answer": func(*rapid.T) { w.answer() },
		"crash":  func(t *rapid.T) { w.crash(node.Draw(t, "node")) },
		"pass": func(t *rapid.T) {
			w.pass(time.Duration(rapid.SampledFrom([]int{1, 100, 3000, 11_000}).Draw(t, "ms")) * time.Millisecond)
		},
		"arrive": func(t *rapid.T) {
			if len(w.late) > 0 {
				k := rapid.IntRange(0, len(w.late)-1).Draw(t, "which")
				w.execute(w.late[k])
				w.late = slices.Delete(w.late, k, k+1)
			}
		},
	})
}
