package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

// trialWithin bounds a test of a destination. A page waits for it.
const trialWithin = 20 * time.Second

// TrySink sends one job through a sink of the configuration, opened for that alone, with the row of its destination, if it has one. A fault of
// the configuration is a config.UsageError.
func TrySink(ctx context.Context, cfg *config.Config, log *slog.Logger, name string, job *delivery.Job, row *delivery.Destination) (*view.Tested, error) {
	host := sink.Host{Version: Version, Logger: log}
	if row != nil {
		host.Endpoints = func(string) *delivery.Destination { return row }
	}
	entry, err := sink.Open(cfg.Sinks[name], host)
	if err != nil {
		return nil, config.Usagef("sinks.%s.%s", name, err)
	}
	router := sink.New(sink.Options{Sinks: map[string]sink.Entry{name: entry}, Logger: log, Registerer: prometheus.NewRegistry()})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { _ = router.Run(running) })
	var shown sink.Exchange
	res := router.Try(ctx, name, job, &shown)
	stop()
	background.Wait()
	if err := router.Close(); err != nil {
		return nil, err
	}
	v := &view.Tested{
		Sink: name, Job: job.ID, Class: res.Class.String(), Status: res.Status, RetryAfter: res.RetryAfter.Seconds(), Detail: res.Detail,
		Took: float64(res.Took.Microseconds()) / 1000, Request: shown.Request, Answer: shown.Answer,
	}
	if res.Class == delivery.Throttled || res.Class == delivery.Misconfigured {
		v.Scope = [...]string{"sink", "destination", "campaign", "recipient"}[res.Scope]
	}
	if p := res.Provider; p != nil {
		v.ProviderCode, v.ProviderMessageID = p.Code, p.MessageID
	}
	return v, nil
}

// testDestination implements view.Sources.Test.
func (s *Services) testDestination(admin *catalog.Admin) func(ctx context.Context, id, payload string) (*view.Tested, error) {
	return func(ctx context.Context, id, payload string) (*view.Tested, error) {
		ctx, cancel := context.WithTimeout(ctx, trialWithin)
		defer cancel()
		row, err := admin.GetDestination(ctx, id)
		if err != nil {
			return nil, err
		}
		cfg := s.latest()
		d := row.Destination()
		d.DisabledAt = 0            // to find out whether it may be enabled
		name, _ := s.sinkOf(cfg, d) // the trial says what is wrong
		if _, ok := cfg.Sinks[name]; !ok {
			return nil, catalog.Fault(catalog.ErrInvalid, "no sink that sends to destination %s is in the configuration of this process", id)
		}
		job := &delivery.Job{ID: "test-" + strconv.FormatInt(time.Now().UnixMicro(), 10), Campaign: "test", Weight: 1, Payload: []byte(payload)}
		job.ContentType, job.Destination = "application/json", id
		tested, err := TrySink(ctx, cfg, s.Log, name, job, d)
		if err != nil {
			return nil, fmt.Errorf("test %s: %w", id, err)
		}
		by := catalog.ActorOf(ctx)
		s.Log.Info("a destination was tested by hand", "destination", id, "sink", name, "class", tested.Class, "by", by.Name, "reason", by.Reason, "request", by.RequestID)
		return tested, nil
	}
}

// sinkOf returns the sink that sends to a row: the one that it names, or else the first that can. The error is why nothing is sent to it; it is nil
// if that is not known, since a sink cannot be opened.
func (s *Services) sinkOf(cfg *config.Config, row *delivery.Destination) (string, error) {
	tables := sink.Tables{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
		if !cfg.Sinks[name].Entry().Destinations {
			continue
		}
		entry, err := sink.Open(cfg.Sinks[name], sink.Host{Version: Version, Logger: s.Log})
		if err != nil {
			return cmp.Or(row.Sink, name), nil
		}
		defer func() { _ = entry.Sink.Close() }() // it has opened no connection
		tables.Add(name, cfg.Sinks[name], entry.Sink)
	}
	return tables.For(row)
}
