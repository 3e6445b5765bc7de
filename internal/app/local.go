package app

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// localPatience bounds a look at the database, which has bounds of its own.
	localPatience = time.Minute
	// snapshotFor is how old the catalog may be that a command which goes on sees.
	snapshotFor = 3 * time.Second
)

// local has the API in the process of a command, which it serves one request at a time.
type local struct {
	*console.Local
	admin *catalog.Admin // nil: the command needs no database
	set   *shards.Set    // nil: the configuration has no store

	mu       sync.Mutex // guards what follows
	snapshot *delivery.Snapshot
	loadedAt time.Time
	fault    error // why the database could not be read
}

// Local returns the transport to the API in this process, for the user by, and what closes it. Without database it has none.
func (s *Services) Local(by string, database bool) (transport http.RoundTripper, end func(), err error) {
	l := &local{}
	degraded := ""
	var engine *limits.Engine
	if fault := s.Config.Fault(config.NeedRedis); fault != nil {
		degraded = fault.Error()
	} else if len(s.Config.Redis.Addrs) == 0 {
		degraded = "redis.addrs is not set, so gates, quotas and daemons were not asked"
	} else if l.set, err = s.Shards(); err == nil {
		engine, err = limits.New(limits.Options{
			Shards: l.set, KeyPrefix: s.Config.Redis.KeyPrefix, Logger: s.Log, Registerer: prometheus.NewRegistry(),
		})
	}
	if err != nil && !database {
		l.close()
		return nil, nil, err
	} else if err != nil { // the rest is of use
		degraded = err.Error()
		l.close()
		l.set = nil
	}
	s.Config.HTTP.Payloads = config.PayloadsAll // who reaches Kafka may see them
	sources := s.sources(l.set)
	sources.Patience, sources.Snapshot, sources.Degraded = localPatience, l.latest, func() string { return degraded }
	if engine != nil {
		s.addStore(&sources, engine)
	}
	if database {
		if l.admin, err = catalog.NewAdmin(s.DSN()); err != nil {
			l.close()
			return nil, nil, config.UsageError{Err: err}
		}
		s.addCatalog(&sources, l.admin, engine)
		sources.Catalog = &countedCatalog{l.admin, l}
	}
	l.Local = console.NewLocal(sources, by)
	return l, l.close, nil
}

// RoundTrip implements http.RoundTripper. An answer that lacks what the database has is none.
func (l *local) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	if l.fault = nil; r.Method != http.MethodGet {
		l.loadedAt = time.Time{}
	}
	l.mu.Unlock()
	answer, err := l.Local.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.fault != nil {
		return nil, l.fault
	}
	return answer, err
}

// latest returns the catalog, which it reads if it is old.
func (l *local) latest() *delivery.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.admin == nil || l.fault != nil || time.Since(l.loadedAt) < snapshotFor {
		return l.snapshot
	}
	l.snapshot, l.fault = l.admin.Snapshot(context.Background()) // it bounds that itself
	l.loadedAt = time.Now()
	return l.snapshot
}

func (l *local) close() {
	if l.admin != nil {
		l.admin.Close()
	}
	if l.set != nil {
		_ = l.set.Close() // nothing is written on closing
	}
}

// countedCatalog is a catalog whose counts are missed: that they cannot be read is a fault.
type countedCatalog struct {
	*catalog.Admin
	local *local
}

func (c *countedCatalog) ListCampaigns(ctx context.Context) ([]catalog.CampaignRow, error) {
	list, err := c.Admin.ListCampaigns(ctx)
	if err != nil {
		c.local.mu.Lock()
		defer c.local.mu.Unlock()
		c.local.fault = err
	}
	return list, err
}
