package command

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
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
	open := &cobra.Command{
		Use: "open SINK", Short: "Open the gate of a sink, or of one of its destinations, for all daemons, whatever closed it", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("destination") && strings.TrimSpace(destination) == "" {
				return config.Usagef("--destination: names none; pacer sink destinations %s lists those that are closed", args[0])
			}
			return c.openSink(cmd.Context(), args[0], destination)
		},
		Long: `Opens the gate of a sink that a destination or its failures have closed, for all daemons: those that wait go on within
a few seconds. If the destination still does not work, the gate closes again.`,
		Example: "  pacer sink open receiver\n  pacer sink open shops --destination https://shop-7.example:443",
	}
	open.Flags().StringVar(&destination, "destination", "", "the destination whose gate is opened, as sink destinations names it; that of the sink stays as it is")
	return group("sink", "Sinks: whether their gates are open",
		c.withServer(c.plain("list", "List all sinks, with what has closed their gates", c.listSinks)), c.withServer(c.withJSON(open)), c.sinkDestinations(), c.sinkTest())
}

// sinkView is one sink of `sink list`.
type sinkView struct {
	Sink  string     `json:"sink"`
	Gate  string     `json:"gate"` // open, closed, or half-open: one job a second is tried
	Cause string     `json:"cause,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"` // nothing is sent before
	Calls int        `json:"max_in_flight"`   // of one daemon
	// Destinations is how many destinations of the sink are closed or half-open.
	Destinations int `json:"destinations_closed"`
	// Figures are what all daemons tell; nil where none does.
	Figures *view.SinkFigures `json:"figures,omitempty"`
}

// newSinkView shows a sink with its gate, or without one that is open.
func newSinkView(s *view.Sink) sinkView {
	v := sinkView{Sink: s.Name, Gate: "open", Calls: s.MaxInFlight, Destinations: s.Closed(), Figures: s.Figures}
	for _, g := range s.Gates { // there is one at most
		v.Gate, v.Until = gateState(g.Until)
		v.Cause, v.Since = g.Cause, g.Since
	}
	return v
}

// gateState is the state of a gate that is not open.
func gateState(until *time.Time) (string, *time.Time) {
	if until != nil && until.After(time.Now()) {
		return "closed", until
	}
	return "half-open", nil
}

// sinks returns all sinks, each with at most that many closed destinations.
func (c *cli) sinks(ctx context.Context, destinations int) (*client, []view.Sink, error) {
	api, err := c.clientBy(operator(), config.NeedRedis)
	if err != nil {
		return nil, nil, err
	}
	var answer struct{ Sinks []view.Sink }
	if err := api.get(ctx, "/sinks", url.Values{"destinations": {strconv.Itoa(destinations)}}, &answer); err != nil {
		return nil, nil, err
	}
	if len(answer.Sinks) == 0 {
		return nil, nil, config.Usagef("sinks: none is configured here; use the configuration of the daemons")
	}
	for i := range answer.Sinks {
		if why := answer.Sinks[i].Unknown; why != "" {
			return nil, nil, fmt.Errorf("redis.addrs: %s", why)
		}
	}
	return api, answer.Sinks, nil
}

// oneSink is sinks for one of them.
func (c *cli) oneSink(ctx context.Context, name string, destinations int) (*client, *view.Sink, error) {
	api, all, err := c.sinks(ctx, destinations)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for i := range all {
		if all[i].Name == name {
			return api, &all[i], nil
		}
		names = append(names, all[i].Name)
	}
	return nil, nil, noSink(name, names)
}

func (c *cli) listSinks(ctx context.Context) error {
	_, all, err := c.sinks(ctx, 0)
	if err != nil {
		return err
	}
	views := make([]sinkView, 0, len(all))
	for i := range all {
		views = append(views, newSinkView(&all[i]))
	}
	return c.printTable(views, func(p *printer) {
		p.line("SINK\tGATE\tCAUSE\tSINCE\tUNTIL\tMAX IN FLIGHT\tDESTINATIONS CLOSED\tIN FLIGHT\tANSWERS/S\tP50\tP99\tLAST FAILURE")
		for i := range views {
			v := &views[i]
			p.line("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s", v.Sink, v.Gate, cmp.Or(v.Cause, "-"), instant(v.Since, time.RFC3339), instant(v.Until, time.RFC3339), v.Calls, v.Destinations, answersOf(v.Figures))
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

// sinkOpened is the JSON output of `sink open`.
type sinkOpened struct {
	Sink        string    `json:"sink"`
	Destination string    `json:"destination,omitempty"`
	Opened      bool      `json:"opened"`        // false: it was open
	Was         *sinkView `json:"was,omitempty"` // of the sink's own gate
	Cause       string    `json:"cause,omitempty"`
	By          string    `json:"by,omitempty"` // without --server, where the console knows it
}

// openSink opens the gate of a sink or, if it is named, of one of its destinations. A gate that is shown as open may just be closing, and
// is opened as well.
func (c *cli) openSink(ctx context.Context, name, destination string) error {
	api, s, err := c.oneSink(ctx, name, mostListed)
	if err != nil {
		return err
	}
	var v sinkOpened
	if err := api.call(ctx, http.MethodPost, "/sinks/"+url.PathEscape(name)+"/open", nil, map[string]string{"destination": destination}, &v); err != nil {
		return err
	}
	what, was := "the gate of sink "+name, newSinkView(s)
	if destination != "" {
		what, was = "destination "+destination+" of sink "+name, sinkView{Gate: "open"}
		if i := slices.IndexFunc(s.Destinations, func(d view.ClosedDestination) bool { return d.Destination == destination }); i >= 0 {
			was.Gate, v.Cause = "closed", s.Destinations[i].Cause
			was.Cause = v.Cause
		}
	} else if v.Opened && was.Gate != "open" {
		v.Was = &was
	}
	if c.server.address == "" {
		v.By = operator()
	}
	return c.print(v, func(p *printer) {
		switch {
		case !v.Opened:
			p.line("%s was open", what)
		case was.Until != nil:
			p.line("opened %s, which was closed (%s) until %s", what, was.Cause, was.Until.Format(time.RFC3339))
		case was.Gate == "open": // it was closed meanwhile
			p.line("opened %s", what)
		default:
			p.line("opened %s, which was %s (%s)", what, was.Gate, was.Cause)
		}
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
