package command

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

func (c *cli) sink() *cobra.Command {
	var destination string
	var open *cobra.Command
	const short = "Open the gate of a sink, or of one of its destinations, for all daemons, whatever closed it"
	open = c.ofSink("open", short, func(ctx context.Context, name string) error {
		if open.Flags().Changed("destination") && strings.TrimSpace(destination) == "" {
			return config.Usagef("--destination: names none; pacer sink destinations %s lists those that are closed", name)
		}
		return c.openSink(ctx, name, destination)
	})
	open.Long = `Opens the gate of a sink that a destination or its failures have closed, for all daemons: those that wait go on within
a few seconds. If the destination still does not work, the gate closes again.`
	open.Example = "  pacer sink open receiver\n  pacer sink open shops --destination https://shop-7.example:443"
	open.Flags().StringVar(&destination, "destination", "", "the destination whose gate is opened, as sink destinations names it; that of the sink stays as it is")
	return group("sink", "Sinks: whether their gates are open",
		c.withServer(c.plain("list", "List all sinks, with what has closed their gates", c.listSinks), config.NeedRedis),
		c.withServer(open, config.NeedRedis), c.sinkDestinations(), c.sinkTest())
}

// ofSink makes a command about one sink, with --json.
func (c *cli) ofSink(name, short string, run func(ctx context.Context, sink string) error) *cobra.Command {
	return c.of(name+" SINK", short, "exactly one id", func(ctx context.Context, args []string) error { return run(ctx, args[0]) })
}

// gateOf returns the state of a gate, and until when nothing is sent: open, closed, or half-open, when one job is tried.
func gateOf(cause string, until *time.Time) (state string, closed *time.Time) {
	switch {
	case cause == "":
		return "open", nil
	case until != nil && until.After(time.Now()):
		return "closed", until
	}
	return "half-open", nil
}

// gate returns the gate of a sink that is not open; the zero Gate if it is.
func gate(s *view.Sink) view.Gate {
	if len(s.Gates) == 0 {
		return view.Gate{}
	}
	return s.Gates[0] // there is one at most
}

// sinks returns all sinks, each with at most that many closed destinations.
func (c *cli) sinks(ctx context.Context, destinations int) ([]view.Sink, error) {
	var answer struct{ Sinks []view.Sink }
	if err := c.get(ctx, "/sinks", url.Values{"destinations": {strconv.Itoa(destinations)}}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Sinks) == 0 {
		return nil, config.Usagef("sinks: none is configured here; use the configuration of the daemons")
	}
	for i := range answer.Sinks {
		if why := answer.Sinks[i].Unknown; why != "" {
			return nil, fmt.Errorf("redis.addrs: %s", why)
		}
	}
	return answer.Sinks, nil
}

func (c *cli) listSinks(ctx context.Context) error {
	all, err := c.sinks(ctx, 0)
	if err != nil {
		return err
	}
	return c.printTable(all, func(p *printer) {
		p.line("SINK\tGATE\tCAUSE\tSINCE\tUNTIL\tMAX IN FLIGHT\tDESTINATIONS CLOSED\tIN FLIGHT\tANSWERS/S\tP50\tP99\tLAST FAILURE")
		for i := range all {
			s := &all[i]
			g := gate(s)
			state, until := gateOf(g.Cause, g.Until)
			p.line("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s", s.Name, state, cmp.Or(g.Cause, "-"), instant(g.Since, time.RFC3339), instant(until, time.RFC3339), s.MaxInFlight, s.Closed(), answersOf(s.Figures))
		}
	})
}

// answersOf are the last columns of `sink list`: what all daemons have in flight, and what was answered in the last minute.
func answersOf(f *view.SinkFigures) string {
	if f == nil {
		return "-\t-\t-\t-\t-"
	}
	all := make([]string, 0, len(f.Answers))
	for _, class := range delivery.ResultClasses {
		if n := f.Answers[class.String()]; n > 0 {
			all = append(all, fmt.Sprintf("%.1f %s", n, class))
		}
	}
	last := "-"
	if f.LastFailureAt != nil {
		last = instant(f.LastFailureAt, time.RFC3339) + " " + f.LastFailure
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", f.InFlight, cmp.Or(strings.Join(all, ", "), "-"), milliseconds(f.P50), milliseconds(f.P99), last)
}

func milliseconds(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fms", 1000**seconds)
}

// opened is the JSON output of `sink open`.
type opened struct {
	Sink        string `json:"sink"`
	Destination string `json:"destination,omitempty"`
	Opened      bool   `json:"opened"`
}

// openSink opens the gate of a sink or, if it is named, of one of its destinations. A gate that is shown as open may just be closing, and
// is opened as well.
func (c *cli) openSink(ctx context.Context, name, destination string) error {
	c.who = operator()
	what := "the gate of sink " + name
	if destination != "" {
		what = "destination " + destination + " of sink " + name
	}
	body := map[string]string{"destination": destination}
	return ask(ctx, c, http.MethodPost, pathOf("sinks", name, "open"), nil, body, func(p *printer, done *opened) {
		if done.Opened {
			p.line("opened %s", what)
			return
		}
		p.line("%s was open", what)
	})
}

func noSink(name string, names []string) error {
	return config.Usagef("the configuration has no sink %s; it has %s", name, strings.Join(names, ", "))
}

// operator is who runs the command, as far as this machine knows.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
