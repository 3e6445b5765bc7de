package catalog

import (
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
			rows := try(os.ReadFile("testdata/" + release + ".sql"))(t)
			dsn, ctx := testservices.Database(t), t.Context()
			m := migrator(t, dsn)
			must(t, m.with(ctx, func(_ *sql.DB, provider *goose.Provider) error {
				_, err := provider.UpTo(ctx, version)
				return err
			}))
			run(t, connected(t, dsn), string(rows))
			try(m.Up(ctx))(t)
			p := started(t, Options{DSN: dsn})
			for id, c := range p.Snapshot().Campaigns {
				if c.Invalid != "" || len(c.Quotas) == 0 {
					t.Errorf("%s: %q, %d quotas", id, c.Invalid, len(c.Quotas))
				}
			}
			a := adminOver(p)
			for _, c := range []struct {
				got  any
				want []string
			}{
				{try(a.ListCampaigns(ctx))(t), []string{
					`"id":"full"`, `"rate":"150/1m"`, `"paused_until":"2100-01-01T00:00:00Z"`, `"active_hours":"mon,fri 09:00-21:00"`, `"ramp":"start=10,`, `"overflow":"block"`,
					`"delivered":7,"rejected":1,"dead":2,"expired":3,"cancelled":4,"capped":0,"backlog":5`,
				}},
				{try(listQuotas(ctx, a))(t), []string{
					`"ID":"provider"`, `"Spend":"even"`, `"Exempt":50`, `"Shard":1`, `"Algorithm":"log"`, `"Anchor":"day@Europe/Moscow"`, `"Unit":"bytes"`,
				}},
				{try(a.DestinationsAfter(ctx, "", 1000))(t), []string{
					`"id":"shop-7"`, `"x-tenant":"blue"`, `"file:new","env:DESTINATION_OLD"`, `"the customer asked for it"`,
				}},
				{try(p.LoadPositions(ctx, "pacer"))(t), []string{`42`, `"AQ"`}},
				{try(p.Usage(ctx, []string{"provider"}, 0))(t), []string{`12`, `30`}},
				{try(a.Changes(ctx, ChangesOf{Limit: 100}))(t), []string{`"the customer asked for it"`}},
				{try(a.Replays(ctx))(t), []string{`"r1"`}},
			} {
				text := string(try(json.Marshal(c.got))(t))
				if slices.ContainsFunc(c.want, func(s string) bool { return !strings.Contains(text, s) }) {
					t.Errorf("%s lacks one of %q", text, c.want)
				}
			}
		})
	}
}
