package command

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

const (
	// triedDestinations is how many destinations are connected to unless more are asked for, and mostTried how many may be.
	triedDestinations, mostTried = 20, 10_000
	// destinationsPage is how many rows are read at a time, and destinationsAtOnce how many are connected to at a time.
	destinationsPage, destinationsAtOnce = 1000, 32
	// reachOne bounds a connection to a destination, and reachAll all of them together.
	reachOne, reachAll = 5 * time.Second, 30 * time.Second
	// destinationLines is how many destinations have a line each.
	destinationLines = 20
)

// destinationPage returns at most limit rows behind the one with an id, in the order of their ids.
type destinationPage func(ctx context.Context, after string, limit int) ([]catalog.DestinationRow, error)

// destinationCheck looks at all rows of pacer.destinations, as far as that needs no network, and connects to a few of them.
type destinationCheck struct {
	sinks sink.Tables
	most  int // how many are connected to

	seen, disabled, failing int
	cut                     bool                 // not all rows could be read in time
	wrong                   int                  // nothing can be sent to them
	usable                  int                  // of those that are enabled
	sample                  []reachedDestination // of the usable ones
}

// reachedDestination is one that is connected to.
type reachedDestination struct {
	row  *delivery.Destination
	sink sink.Table
	done bool // false: there was no time for it
	err  error
}

// run looks at the rows, and says what it has found.
func (d *destinationCheck) run(ctx context.Context, c *checks, page destinationPage) {
	if err := d.read(ctx, c, page); err != nil {
		c.say("destinations", err)
		return
	}
	if len(d.sinks) == 0 {
		if d.seen > 0 {
			c.note("destinations", "there are some, and no sink of this configuration has destinations: true, so nothing is sent to them")
		}
		return
	}
	d.reach(ctx)
	d.report(c)
}

// read looks at the rows, and chooses those that are connected to.
func (d *destinationCheck) read(ctx context.Context, c *checks, page destinationPage) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if len(d.sinks) == 0 {
		rows, err := page(ctx, "", 1)
		d.seen = len(rows)
		return err
	}
	for after := ""; ; {
		rows, err := page(ctx, after, destinationsPage)
		if err != nil && (d.seen == 0 || ctx.Err() == nil) {
			return err
		}
		for i := range rows {
			d.look(c, &rows[i])
			after = rows[i].ID
		}
		if d.cut = ctx.Err() != nil; d.cut || len(rows) < destinationsPage {
			return nil
		}
	}
}

// look looks at a row, and says what is wrong with it.
func (d *destinationCheck) look(c *checks, row *catalog.DestinationRow) {
	d.seen++
	if row.DisabledAt != nil {
		d.disabled++
		return // its jobs wait, and what it needs may be on its way
	}
	if row.FailingSince != nil {
		d.failing++
	}
	e := row.Destination()
	name, err := d.sinks.For(e)
	if err != nil {
		if d.wrong++; d.wrong <= destinationLines {
			c.fail("destination "+e.ID, err.Error())
		}
		return
	}
	// Each of the usable rows is in the sample with the same probability, however many there are.
	switch d.usable++; {
	case len(d.sample) < d.most:
		d.sample = append(d.sample, reachedDestination{row: e, sink: d.sinks[name]})
	case d.most > 0:
		if i := rand.IntN(d.usable); i < d.most {
			d.sample[i] = reachedDestination{row: e, sink: d.sinks[name]}
		}
	}
}

// reach connects to the rows of the sample.
func (d *destinationCheck) reach(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reachAll)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(destinationsAtOnce)
	for i := range d.sample {
		r := &d.sample[i]
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			one, cancel := context.WithTimeout(ctx, reachOne)
			defer cancel()
			r.err = r.sink.ReachRow(one, r.row)
			r.done = r.err == nil || ctx.Err() == nil
			return nil
		})
	}
	_ = all.Wait() // each has its own result
}

// report says what was found. That a destination cannot be reached is noted, and no failure: that is most likely for its owner to
// mend. If none can be, it is for us.
func (d *destinationCheck) report(c *checks) {
	if more := d.wrong - destinationLines; more > 0 {
		c.fail("destinations", fmt.Sprintf("%d more cannot be sent to", more))
	}
	done, out := 0, 0
	for i := range d.sample {
		r := &d.sample[i]
		if !r.done {
			continue
		}
		done++
		if r.err == nil {
			continue
		}
		if out++; out <= destinationLines {
			c.note("destination "+r.row.ID, "%s; its jobs wait until it can be", oneLine(r.err.Error()))
		}
	}
	text := fmt.Sprintf("%d, of which %d are disabled and %d failing", d.seen, d.disabled, d.failing)
	if d.cut {
		text = fmt.Sprintf("only %d were read within %s, of which %d are disabled and %d failing", d.seen, checkTimeout, d.disabled, d.failing)
	}
	switch {
	case d.usable == 0 || d.most == 0:
	case done < len(d.sample):
		text += fmt.Sprintf("; connected to %d of %d chosen at random, the rest of these not within %s", done-out, len(d.sample), reachAll)
	default:
		text += fmt.Sprintf("; connected to %d of %d chosen at random", done-out, done)
	}
	if done > 0 && out == done {
		c.fail("destinations", text+": if others reach them, look at the network, the names and the proxy of this machine")
		return
	}
	c.add(checkResult{"destinations", checkOK, text})
}
