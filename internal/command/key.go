package command

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) key() *cobra.Command {
	var until string
	hold := c.ofKey("hold", "Send no job of one value of a key for a time", func(ctx context.Context, quota, key string) error {
		at, err := notation.ParseUntil(until, time.Now())
		if err != nil {
			return config.Usagef("--until: %s", err)
		}
		return c.changeKey(ctx, quota, key, view.KeyEdit{HeldUntil: &at})
	})
	hold.Flags().StringVar(&until, "until", "24h", "a `TIME` in RFC 3339, or a span from now on")
	return group("key", "Values of the keys of keyed quotas: recipients, chats, customers",
		c.ofKey("show", "Show what one value of a key has used, and when it is allowed again", func(ctx context.Context, quota, key string) error {
			return ask(ctx, c, http.MethodGet, keyPath(quota, key), nil, nil, printKey)
		}),
		hold,
		c.ofKey("release", "Let jobs of a value that is held be sent again", func(ctx context.Context, quota, key string) error {
			now := time.Now()
			return c.changeKey(ctx, quota, key, view.KeyEdit{HeldUntil: &now})
		}))
}

// ofKey makes a command about one value of the key of a quota.
func (c *cli) ofKey(name, short string, run func(ctx context.Context, quota, key string) error) *cobra.Command {
	cmd := c.of(name+" QUOTA KEY", short, "the id of a quota and a value of its key", func(ctx context.Context, args []string) error {
		return run(ctx, args[0], args[1])
	})
	return c.withServer(cmd, config.NeedPostgres, config.NeedRedis)
}

func keyPath(quota, key string) string { return pathOf("quotas", quota, "keys", key) }

func (c *cli) changeKey(ctx context.Context, quota, key string, change any) error {
	return ask(ctx, c, http.MethodPatch, keyPath(quota, key), nil, change, printKey)
}

func printKey(p *printer, k *view.Key) {
	p.line("quota\t%s", k.Quota)
	p.line("%s\t%s", k.Per, k.Key)
	for _, w := range k.Windows {
		p.line("window %s\t%d of %d used", w.Window, w.Used, w.Limit)
	}
	for _, at := range []struct {
		name string
		at   *time.Time
	}{{"held until", k.HeldUntil}, {"next job at", k.FreeAt}, {"turns reserved until", k.LineUntil}} {
		if at.at != nil {
			p.line("%s\t%s", at.name, instant(at.at, time.RFC3339))
		}
	}
	if k.FreeAt == nil {
		p.line("next job at\tnow")
	}
}
