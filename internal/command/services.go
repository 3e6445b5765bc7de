package command

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
)

// services loads the configuration and prepares connections to the services that the command needs.
func (c *cli) services(needs ...config.Section) (*app.Services, error) {
	cfg, log, err := c.load(needs...)
	if err != nil {
		return nil, err
	}
	s := app.NewServices(cfg, log)
	if slices.Contains(needs, config.NeedKafka) || slices.Contains(needs, config.NeedTopics) {
		if err := s.OpenKafka(); err != nil {
			return nil, err
		}
	}
	if s.DSN() != "" {
		s.Catalogued = sync.OnceValue(func() *delivery.Snapshot {
			ctx, cancel := context.WithTimeout(context.Background(), warnWithin)
			defer cancel()
			found, _ := s.CheckCatalog(ctx) // without the catalog, any cluster is used
			return &delivery.Snapshot{Installation: found.Installation}
		})
	}
	return s, nil
}

// source is where the configuration is read from.
func (c *cli) source() config.Source {
	return config.Source{Path: c.config, Explicit: c.configSet, Environ: c.Environ}
}

// load reads the configuration and logs its warnings.
func (c *cli) load(needs ...config.Section) (*config.Config, *slog.Logger, error) {
	cfg, warnings, err := config.LoadFor(c.source(), needs...)
	if err != nil {
		return nil, nil, withHints(err, warnings)
	}
	log := cfg.Log.Logger(c.Stderr)
	for _, w := range warnings {
		log.Warn("configuration", "problem", w)
	}
	return cfg, log, nil
}

// withHints adds the warnings to an error about missing settings: a misspelled variable is the likely reason.
func withHints(err error, warnings []string) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	return config.UsageError{Err: slices.Concat(problems, warnings)}
}

// openAdmin opens the catalog for changes.
func openAdmin(cfg *config.Config) (*catalog.Admin, error) {
	a, err := catalog.NewAdmin(cfg.Postgres.DSN.Reveal())
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	return a, nil
}
