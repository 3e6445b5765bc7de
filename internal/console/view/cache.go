package view

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// waitFor is how long a page waits for an answer: three of them, and the page is there within a tenth of a second.
	waitFor = 20 * time.Millisecond
	// mostKept bounds the answers of one kind that are kept: as many as there are streams of pages.
	mostKept = 64
)

// ErrAsking means that there is no answer yet.
var ErrAsking = errors.New("it is being asked for")

// question is what a cache is asked.
type question struct {
	kind, about string
	fresh       time.Duration // how old the answer may be
	within      time.Duration // bounds the question; 0: sourceTimeout
	keep        time.Duration // how long an answer is shown that cannot be had anew; 0: StaleAfter
}

// cache keeps answers for a time. Of each kind one question at a time is asked, in the background: it outlives the request that asks, but not
// the owner of the cache, who ends it. Safe for concurrent use.
type cache struct {
	ended context.Context // by stop
	stop  context.CancelFunc

	patience time.Duration // how long whoever asks waits for an answer

	running sync.WaitGroup // questions
	mu      sync.Mutex     // guards what follows; never held while asking
	kinds   map[string]*answers
}

// answers are those of one kind, by what they are about.
type answers struct {
	kept   map[string]answer
	asking chan struct{} // closed when the question under way is answered; nil: there is none
}

type answer struct {
	at    time.Time
	value any
	err   error
}

func newCache(patience time.Duration) *cache {
	c := &cache{patience: patience, kinds: map[string]*answers{}}
	c.ended, c.stop = context.WithCancel(context.Background())
	return c
}

// cached returns the answer to a question. While another question of the kind is under way, or after a wait of patience, it returns the
// last answer, or ErrAsking. A question that has failed is not asked again at once either.
func cached[V any](ctx context.Context, c *cache, q question, load func(context.Context) (V, error)) (value V, err error) {
	last := c.last(q)
	if time.Since(last.at) >= q.fresh {
		if answered, mine := c.ask(ctx, q, func(ctx context.Context) (any, error) { return load(ctx) }); mine {
			select {
			case <-answered:
			case <-ctx.Done():
			case <-time.After(c.patience):
			}
			last = c.last(q)
		}
	}
	value, _ = last.value.(V)
	return value, last.err
}

// ask asks a question unless one of the kind is under way. answered is closed by the answer; mine reports whether this call asked.
// answered is nil after the end.
func (c *cache) ask(ctx context.Context, q question, load func(context.Context) (any, error)) (answered <-chan struct{}, mine bool) {
	c.mu.Lock()
	a := c.kinds[q.kind]
	if a == nil {
		a = &answers{kept: map[string]answer{}}
		c.kinds[q.kind] = a
	}
	if a.asking != nil || c.ended.Err() != nil {
		defer c.mu.Unlock()
		return a.asking, false
	}
	begun, done := make(chan struct{}), make(chan struct{})
	a.asking = done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(q.within, sourceTimeout)) // others get the answer as well
	unhook := context.AfterFunc(c.ended, cancel)
	c.running.Go(func() {
		defer cancel()
		defer unhook()
		close(begun)
		value, err := load(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		a.keep(q, answer{time.Now(), value, err})
		a.asking = nil
		close(done)
	})
	c.mu.Unlock()
	<-begun // a source is not slow because this process is
	return done, true
}

func (a *answers) keep(q question, one answer) {
	maps.DeleteFunc(a.kept, func(_ string, old answer) bool { return one.at.Sub(old.at) > cmp.Or(q.keep, StaleAfter) })
	if len(a.kept) >= mostKept {
		delete(a.kept, slices.MinFunc(slices.Collect(maps.Keys(a.kept)), func(x, y string) int { return a.kept[x].at.Compare(a.kept[y].at) }))
	}
	a.kept[q.about] = one
}

// last returns the last answer, unless it is too old.
func (c *cache) last(q question) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.kinds[q.kind]; a != nil {
		if one, known := a.kept[q.about]; known && time.Since(one.at) <= cmp.Or(q.keep, StaleAfter) {
			return one
		}
	}
	return answer{err: ErrAsking}
}

// end stops the questions that are under way, and waits for them, but not for sources that hang. No more are asked.
func (c *cache) end() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	over := make(chan struct{})
	go func() {
		c.running.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(sourceTimeout + time.Second):
	}
}
