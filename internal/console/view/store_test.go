package view

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/keyed"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestTheConsoleOpensGates: of a sink that is configured and of its destinations, for all daemons, and the log says who did.
func TestTheConsoleOpensGates(t *testing.T) {
	set, err := shards.Connect(shards.Options{Addrs: []string{testservices.FreshRedis(t).Addr}, Mode: shards.ModeSingle})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	engine := limits.New(limits.Options{Shards: set, KeyPrefix: "pacer.", Registerer: prometheus.NewRegistry()})
	var said strings.Builder
	sources := Sources{Sinks: []Sink{{Name: "shops"}}}
	sources.AddStore(engine, keyed.Desk{Shards: set, KeyPrefix: "pacer."}, slog.New(slog.NewTextHandler(&said, nil)))
	open := func(destination string, want bool) {
		t.Helper()
		closed, err := sources.Open(catalog.WithActor(t.Context(), catalog.Actor{Name: "alice@10.0.0.7", Reason: "mended"}), "shops", destination)
		if err != nil || closed != want {
			t.Errorf("%q was closed: %v, %v", destination, closed, err)
		}
	}
	open("", false)
	open("https://a.example:443", false)
	shut := delivery.Gate{Sink: "shops", Cause: delivery.GateFailing, Until: time.Now().Add(time.Hour)}
	for _, shut.Destination = range []string{"", "https://a.example:443", "https://b.example:443"} {
		if _, err := engine.MoveGates(t.Context(), []delivery.Gate{shut}); err != nil {
			t.Fatal(err)
		}
	}
	if closed, err := sources.Closed(t.Context()); err != nil || len(closed["shops"]) != 2 || closed["shops"][0].Destination != "https://b.example:443" {
		t.Errorf("%+v, %v", closed, err)
	}
	open("https://a.example:443", true)
	open("https://a.example:443", false)
	open("", true)
	if gates, err := engine.Gates(t.Context(), []string{"shops"}); err != nil || len(gates) != 0 {
		t.Errorf("%+v, %v", gates, err)
	}
	if closed, err := sources.Closed(t.Context()); err != nil || len(closed["shops"]) != 1 || closed["shops"][0].Destination != "https://b.example:443" {
		t.Errorf("of a sink that was opened, its destinations are as they were: %+v, %v", closed, err)
	}
	if _, err := sources.Open(t.Context(), "elsewhere", ""); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("of a sink that is not configured: %v", err)
	}
	if !strings.Contains(said.String(), `msg="gate opened by hand" sink=shops destination=https://a.example:443 was_closed=true by=alice@10.0.0.7 reason=mended`) {
		t.Error(said.String())
	}
}

// keyCatalog is a catalog that counts the changes of keys.
type keyCatalog struct {
	Catalog
	changes int
}

func (k *keyCatalog) GetKeyed(_ context.Context, quota, _ string) (*delivery.Quota, error) {
	return &delivery.Quota{ID: quota, Per: "recipient", Windows: []delivery.Window{{Span: time.Hour, Limit: 3}}}, nil
}

func (k *keyCatalog) SetKey(context.Context, string, string, catalog.KeyChange) error {
	k.changes++
	return nil
}

// TestKeysWithoutRedis: a key that was changed in the database is not said to be as it was, and one that cannot be released stays held there.
func TestKeysWithoutRedis(t *testing.T) {
	set, err := shards.Connect(shards.Options{Addrs: []string{"127.0.0.1:1"}, Mode: shards.ModeSingle})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	c := &keyCatalog{}
	s := &quotaStore{keys: keyed.Desk{Shards: set}, catalog: c}
	if _, err := s.setKey(t.Context(), "cap", "anna", KeyEdit{HeldUntil: new(time.Now().Add(-time.Hour))}); err == nil || errors.Is(err, catalog.ErrInDoubt) || c.changes != 0 {
		t.Errorf("released: %v, %d changes", err, c.changes)
	}
	if _, err := s.setKey(t.Context(), "cap", "anna", KeyEdit{HeldUntil: new(time.Now().Add(time.Hour))}); !errors.Is(err, catalog.ErrInDoubt) || c.changes != 1 {
		t.Errorf("held: %v, %d changes", err, c.changes)
	}
}
