package test

import (
	"container/heap"
	"testing"
	"time"
)

// atOnce is how many tests run beside each other. Most of them mostly wait.
const atOnce = 8

var crowd = newTurns(atOnce)

// alongside lets a test run beside others, at most atOnce of them. Of those that wait for their turn the one that is
// expected to take longest goes first, whatever the order of -shuffle, so that none of the long ones is left alone at
// the end: the rule of Graham (1969), by which a schedule is at most a third longer than the best.
func alongside(t *testing.T, expected time.Duration) {
	t.Helper()
	t.Parallel()
	crowd.take(expected)
	began := time.Now()
	t.Cleanup(func() { // the first cleanup, hence after all others
		crowd.giveBack()
		t.Logf("ran for %.1f s, of %.0f expected", time.Since(began).Seconds(), expected.Seconds())
	})
}

// turns gives leave to a bounded number at a time, to the longest first.
type turns struct {
	asked  chan *turn
	freed  chan struct{}
	gather time.Duration // how long the first one waits for others that may be longer
}

type turn struct {
	expected time.Duration
	begin    chan struct{}
}

func newTurns(n int) *turns {
	c := &turns{asked: make(chan *turn), freed: make(chan struct{}), gather: 200 * time.Millisecond}
	go c.run(n)
	return c
}

func (c *turns) take(expected time.Duration) {
	own := &turn{expected, make(chan struct{})}
	c.asked <- own
	<-own.begin
}

func (c *turns) giveBack() { c.freed <- struct{}{} }

// run lives as long as the tests.
func (c *turns) run(free int) {
	var waiting longestFirst
	var gathered <-chan time.Time
	for {
		select {
		case own := <-c.asked:
			heap.Push(&waiting, own)
			gathered = time.After(c.gather)
		case <-c.freed:
			free++
			gathered = time.After(c.gather)
		case <-gathered:
			for ; free > 0 && len(waiting) > 0; free-- {
				close(heap.Pop(&waiting).(*turn).begin)
			}
		}
	}
}

type longestFirst []*turn

func (l longestFirst) Len() int           { return len(l) }
func (l longestFirst) Less(i, j int) bool { return l[i].expected > l[j].expected }
func (l longestFirst) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *longestFirst) Push(x any)        { *l = append(*l, x.(*turn)) }
func (l *longestFirst) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}
