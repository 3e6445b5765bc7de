package sinktest

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Registry stands in for an API of orders that takes several calls: /new makes an order for a key, /find looks for one, /state
// says how far it is, and /close ends it. It speaks HTTP/2 over TLS. Orders are done after as many questions as Polls says.
// It does not mind making two orders for one key, so that tests see it.
type Registry struct {
	*Server
	Polls int

	mu     sync.Mutex
	orders map[string][]string // ids, by key
	asked  map[string]int      // by id
	calls  map[string]int      // by what was called and key
}

// StartRegistry starts a stand-in that calls treat for each call, the n-th of its kind for the key: it answers, or returns false
// for the usual answer. A call that treat answers has no effect, unless it is a lost one: see Take.
func StartRegistry(t testing.TB, polls int, treat func(c *Call, what, key string, n int) (treated bool)) *Registry {
	t.Helper()
	g := &Registry{Polls: polls, orders: map[string][]string{}, asked: map[string]int{}, calls: map[string]int{}}
	g.Server = Start(t, HTTP2, Options{}, func(c *Call) { g.take(c, treat) })
	g.URL = strings.TrimSuffix(g.URL, "/deliver")
	return g
}

// Orders returns how many orders there are for a key.
func (g *Registry) Orders(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.orders[key])
}

// Calls returns how many calls of a kind there were for a key: new, find, state or close.
func (g *Registry) Calls(what, key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[what+" "+key]
}

// Take makes an order for a key, and returns its id.
func (g *Registry) Take(key string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := fmt.Sprintf("%s.%d", key, len(g.orders[key])+1)
	g.orders[key] = append(g.orders[key], id)
	return id
}

func (g *Registry) take(c *Call, treat func(c *Call, what, key string, n int) bool) {
	what, key := g.Asked(c)
	g.mu.Lock()
	g.calls[what+" "+key]++
	n := g.calls[what+" "+key]
	g.mu.Unlock()
	if treat != nil && treat(c, what, key, n) {
		return
	}
	g.Usual(c)
}

// asks returns what a call asks for, and the id and the key that it names.
func (g *Registry) asks(c *Call) (what, id, key string) {
	u, _ := url.Parse(c.Path)
	what, id, key = strings.TrimPrefix(u.Path, "/"), u.Query().Get("id"), u.Query().Get("key")
	if key == "" && strings.Contains(id, ".") {
		key = id[:strings.LastIndex(id, ".")]
	}
	return what, id, key
}

// Asked returns what a call asks for, and its key.
func (g *Registry) Asked(c *Call) (what, key string) {
	what, _, key = g.asks(c)
	return what, key
}

// Usual does what a call asks for, and answers it.
func (g *Registry) Usual(c *Call) {
	what, id, key := g.asks(c)
	switch what {
	case "new":
		c.JSON(201, fmt.Sprintf(`{"order":{"id":%q,"n":7}}`, g.Take(key)))
	case "find":
		g.mu.Lock()
		ids := g.orders[key]
		g.mu.Unlock()
		if len(ids) == 0 {
			c.JSON(200, `{"items":[]}`)
			return
		}
		c.JSON(200, fmt.Sprintf(`{"items":[{"id":%q}]}`, ids[0]))
	case "state":
		g.mu.Lock()
		g.asked[id]++
		state := "working"
		if g.asked[id] > g.Polls {
			state = "done"
		}
		g.mu.Unlock()
		c.JSON(200, fmt.Sprintf(`{"state":%q}`, state))
	case "close":
		c.Answer(204)
	default:
		c.JSON(404, `{}`)
	}
}
