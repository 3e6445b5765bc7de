package catalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/pacer/pacer/internal/testservices"
)

// releases are the schema versions of releases, by the file with rows as that release wrote them.
var releases = map[string]int64{"0.1.0": 1}

// TestRowsOfEachReleaseAreRead: what people and daemons of a release have written is read after pacer migrate up of this version.
func TestRowsOfEachReleaseAreRead(t *testing.T) {
	t.Parallel()
	for release, version := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			rows, err := os.ReadFile("testdata/" + release + ".sql")
			if err != nil {
				t.Fatal(err)
			}
			dsn, ctx := testservices.Database(t), t.Context()
			m := migrator(t, dsn)
			err = m.with(ctx, func(_ *sql.DB, provider *goose.Provider) error {
				_, err := provider.UpTo(ctx, version)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			run(t, connected(t, dsn), string(rows))
			if _, err := m.Up(ctx); err != nil {
				t.Fatal(err)
			}
			p := started(t, Options{DSN: dsn})
			for id, c := range p.Snapshot().Campaigns {
				if c.Invalid != "" || len(c.Quotas) == 0 {
					t.Errorf("%s: %q, %d quotas", id, c.Invalid, len(c.Quotas))
				}
			}
			for what, want := range map[string][]string{
				"campaigns": {`"id":"full","send_rate":"150"`, `"paused_until":"2100-01-01T00:00:00Z"`, `"from":"09:00"`, `"start":10`, `"overflow":"block"`,
					`"delivered":7,"rejected":1,"dead":2,"expired":3,"cancelled":4,"capped":0,"backlog":5`},
				"quotas":       {`"id":"provider"`, `"spend":"even"`, `"rollout":50`, `"shard":1`, `"algorithm":"log"`, `"anchor":"day@Europe/Moscow"`, `"unit":"bytes"`},
				"destinations": {`"id":"shop-7"`, `"x-tenant":"blue"`, `"file:new","env:DESTINATION_OLD"`, `"the customer asked for it"`},
				"positions":    {`42`, `"AQ"`},
				"usage":        {`12`, `30`},
				"changes":      {`"the customer asked for it"`},
				"replays":      {`"r1"`},
			} {
				got, err := readBack(ctx, p, what)
				text, _ := json.Marshal(got)
				if err != nil || slices.ContainsFunc(want, func(s string) bool { return !strings.Contains(string(text), s) }) {
					t.Errorf("%s: %v, %s lacks one of %q", what, err, text, want)
				}
			}
		})
	}
}

// readBack reads one kind of rows as the program does.
func readBack(ctx context.Context, p *Postgres, what string) (any, error) {
	a := p.Admin()
	switch what {
	case "campaigns":
		return a.ListCampaigns(ctx)
	case "quotas":
		return listQuotas(ctx, a)
	case "destinations":
		return a.DestinationsAfter(ctx, "", 1000)
	case "positions":
		return p.LoadPositions(ctx, "pacer")
	case "usage":
		return p.Usage(ctx, []string{"provider"}, 0)
	case "changes":
		return a.Changes(ctx, ChangesOf{Limit: 100})
	default:
		return a.Replays(ctx)
	}
}
