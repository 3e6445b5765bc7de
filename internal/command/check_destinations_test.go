package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

// fakeTable is a sink with valid, wrong and unreachable destinations.
type fakeTable struct{ wrong, out map[string]string }

func (f fakeTable) CheckRow(row *delivery.Destination) error {
	if what, ok := f.wrong[row.ID]; ok {
		return errors.New(what)
	}
	return nil
}

func (f fakeTable) ReachRow(_ context.Context, row *delivery.Destination) error {
	if what, ok := f.out[row.ID]; ok {
		return errors.New(what)
	}
	return nil
}

// paged returns rows page by page, as the catalog does.
func paged(rows []catalog.DestinationRow) destinationPage {
	return func(_ context.Context, after string, limit int) (page []catalog.DestinationRow, err error) {
		for i := range rows {
			if rows[i].ID > after && len(page) < limit {
				page = append(page, rows[i])
			}
		}
		return page, nil
	}
}

func TestCheckOfDestinations(t *testing.T) {
	now := time.Now()
	many := make([]catalog.DestinationRow, 2*destinationsPage+1)
	bad := map[string]string{}
	for i := range many {
		many[i].ID = fmt.Sprintf("d-%05d", i)
		if i%100 == 0 {
			bad[many[i].ID] = "url: no"
		}
	}
	few := []catalog.DestinationRow{{ID: "a"}, {ID: "b", Sink: "second"}, {ID: "c", DisabledAt: &now}, {ID: "d", FailingSince: &now}}
	two := sink.Tables{
		"first":  fakeTable{wrong: map[string]string{"a": "secrets: this daemon has no variable X", "d": "url: no"}},
		"second": fakeTable{wrong: map[string]string{"a": "secrets: no"}, out: map[string]string{"b": "url: cannot connect: connection refused"}},
	}
	for name, tt := range map[string]struct {
		sinks sink.Tables
		most  int
		rows  []catalog.DestinationRow
		want  string
		ok    bool
	}{
		"no sink, no rows": {nil, 20, nil, "", true},
		"no sink": {nil, 20, few,
			"note  destinations: there are some, and no sink of this configuration has destinations: true, so nothing is sent to them\n", true},
		"no rows": {two, 20, nil, "ok    destinations: 0, of which 0 are disabled and 0 failing\n", true},
		"some": {two, 20, few,
			"FAIL  destination a: secrets: this daemon has no variable X\n" +
				"note  destination b: url: cannot connect: connection refused; its jobs wait until it can be\n" +
				"ok    destinations: 4, of which 1 are disabled and 1 failing; connected to 1 of 2 chosen at random\n", false},
		"none is tried": {two, 0, few[1:], "ok    destinations: 3, of which 1 are disabled and 1 failing\n", true},
		"none is reached": {two, 20, few[1:3],
			"note  destination b: url: cannot connect: connection refused; its jobs wait until it can be\n" +
				"FAIL  destinations: 2, of which 1 are disabled and 0 failing; connected to 0 of 1 chosen at random: " +
				"if others reach them, look at the network, the names and the proxy of this machine\n", false},
		"another sink": {sink.Tables{"first": fakeTable{}}, 20, few[1:2],
			"FAIL  destination b: its sink second is not configured with destinations: true; use first\n" +
				"ok    destinations: 1, of which 0 are disabled and 0 failing\n", false},
		"many": {sink.Tables{"first": fakeTable{wrong: bad}}, 50, many,
			strings.Repeat("FAIL  destination d-?: url: no\n", 20) + "FAIL  destinations: 1 more cannot be sent to\n" +
				"ok    destinations: 2001, of which 0 are disabled and 0 failing; connected to 50 of 50 chosen at random\n", false},
	} {
		d := &destinationCheck{sinks: tt.sinks, most: tt.most}
		text, ok := told(func(c *checks) { d.run(t.Context(), c, paged(tt.rows)) })
		for i := range many {
			text = strings.Replace(text, many[i].ID, "d-?", 1)
		}
		if text != tt.want || ok != tt.ok {
			t.Errorf("%s: %t\n%swant\n%s", name, ok, text, tt.want)
		}
	}
	broken := errors.New("postgres.dsn: no")
	text, ok := told(func(c *checks) {
		(&destinationCheck{sinks: two}).run(t.Context(), c, func(context.Context, string, int) ([]catalog.DestinationRow, error) { return nil, broken })
	})
	if text != "FAIL  destinations: postgres.dsn: no\n" || ok {
		t.Error(text)
	}
}
