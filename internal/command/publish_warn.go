package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/jobfile"
	"github.com/pacer/pacer/internal/notation"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// warnWithin bounds the wait for the catalog.
const warnWithin = time.Second

// warnAstray warns if jobs are published to a campaign or to a destination that does not exist, or to none where one is needed, as far as the
// catalog can be asked. Destinations that the file names are not looked up: there may be as many as jobs.
func (c *cli) warnAstray(ctx context.Context, cfg *config.Config, source *jobfile.Source) {
	if cfg.Postgres.DSN.Reveal() == "" {
		return
	}
	admin, err := openAdmin(cfg)
	if err != nil {
		return
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, warnWithin)
	defer cancel()
	row, err := admin.GetCampaign(ctx, source.Campaign)
	why := ""
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		why = err.Error()
	case err == nil:
		why = unroutable(ctx, admin, cfg, source, row.Sink)
	}
	if why != "" {
		c.warn("%s; otherwise these jobs become dead letters after unknown_grace (%s)", why, notation.FormatSpan(cfg.UnknownGrace))
	}
}

// unroutable returns why jobs of a campaign that names this sink have no destination, and what to do; "" for nothing that is known.
func unroutable(ctx context.Context, admin *catalog.Admin, cfg *config.Config, source *jobfile.Source, name string) string {
	name = cmp.Or(name, cfg.DefaultSink)
	if h, ok := cfg.Sinks[name].(*sinkhttp.Config); !ok || !h.Destinations {
		return ""
	}
	id, byFile := source.Destination()
	switch {
	case id == "" && !byFile:
		return "these jobs name no destination, and their sink " + name + " needs one; give --header pacer-destination=ID, or --map destination=COLUMN"
	case id == "":
		return ""
	}
	row, err := admin.GetDestination(ctx, id)
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return err.Error()
	case err == nil && !row.Destination().Serves(name):
		return fmt.Sprintf("destination %s belongs to the sink %s, and the campaign's is %s; change one of them", id, row.Sink, name)
	}
	return ""
}
