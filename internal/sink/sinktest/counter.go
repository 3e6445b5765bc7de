package sinktest

import "sync"

// counter counts by name. The zero value has counted nothing. Safe for concurrent use.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

// add counts one, and returns how many there are.
func (c *counter) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

// of returns how many there are.
func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}
