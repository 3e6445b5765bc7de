package command

import (
	"context"
	"maps"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// sinksAtOnce is how many sinks are checked at a time: one that hangs delays no other.
const sinksAtOnce = 16

// sinkCheck is what the check of one sink has found.
type sinkCheck struct {
	sink   sink.Sink // nil: it could not be opened
	detail string    // what was not reached; "" for nothing
	err    error
}

// sinks checks every sink, and sends nothing. It returns those that send to rows of pacer.destinations, by name.
func (c *checks) sinks(ctx context.Context, s *app.Services) sink.Tables {
	names := slices.Sorted(maps.Keys(s.Config.Sinks))
	found := make([]sinkCheck, len(names))
	var all errgroup.Group
	all.SetLimit(sinksAtOnce)
	for i, name := range names {
		all.Go(func() error {
			found[i] = checkSink(ctx, s.Config.Sinks[name], sink.Host{Version: app.Version, Logger: s.Log})
			return nil
		})
	}
	_ = all.Wait() // each has its own result
	tables := sink.Tables{}
	for i, name := range names {
		f := &found[i]
		if f.err != nil {
			c.say("sink "+name, f.err)
		} else {
			c.add(checkResult{"sink " + name, checkOK, f.detail})
		}
		if h, ok := s.Config.Sinks[name].(*sinkhttp.Config); ok {
			c.httpSink(name, h)
		}
		tables.Add(name, s.Config.Sinks[name], f.sink)
	}
	return tables
}

// checkSink opens a sink, checks it, and closes its connections.
func checkSink(ctx context.Context, cfg sink.Config, host sink.Host) (found sinkCheck) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	entry, err := sink.Open(cfg, host)
	if err != nil {
		return sinkCheck{err: err} // names the key
	}
	found.sink, found.detail = entry.Sink, entry.Sink.Unreached()
	if found.err = entry.Sink.Check(ctx); found.err == nil {
		found.err = entry.Sink.Close()
	}
	return found
}

// httpSink notes what works and should be different.
func (c *checks) httpSink(name string, h *sinkhttp.Config) {
	if h.Timeout > drainTimeout {
		c.note("sinks."+name+".timeout", "%s is above the %s that sends have at a rebalance; those cut off may be sent twice",
			h.Timeout, drainTimeout)
	}
	if target, err := url.Parse(h.URL); err == nil && target.Scheme == "http" && !onThisMachine(target.Host) {
		c.note("sinks."+name+".url", "not encrypted; use https")
	}
}
