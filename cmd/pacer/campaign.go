package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/delivery"
)

func (c *cli) campaign() *cobra.Command {
	list := c.withJSON(&cobra.Command{
		Use: "list", Short: "List all campaigns", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.CampaignList(cmd.Context(), c.invocation(cmd)) },
	})
	show := c.withJSON(&cobra.Command{
		Use: "show ID", Short: "Show one campaign", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.CampaignShow(cmd.Context(), c.invocation(cmd), args[0])
		},
	})
	return group("campaign", "Campaigns: who may send how fast", list, show,
		c.campaignChange("create", "Create a campaign", app.CampaignCreate),
		c.campaignChange("set", "Change a campaign; what is not given stays", app.CampaignSet),
		c.campaignStatus("pause", "Pause a campaign: its jobs wait", delivery.StatusPaused),
		c.campaignStatus("resume", "Let a campaign send again; cancelled jobs stay cancelled", delivery.StatusActive),
		c.campaignStatus("cancel", "Cancel a campaign: its jobs settle as cancelled, for good", delivery.StatusCancelled))
}

func (c *cli) campaignStatus(name, short string, status delivery.Status) *cobra.Command {
	return c.withJSON(&cobra.Command{
		Use: name + " ID", Short: short, Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.CampaignStatus(cmd.Context(), c.invocation(cmd), args[0], status)
		},
	})
}

// campaignChanger is app.CampaignCreate or app.CampaignSet.
type campaignChanger func(ctx context.Context, in app.Invocation, id string, flags *app.CampaignFlags) error

func (c *cli) campaignChange(name, short string, change campaignChanger) *cobra.Command {
	var values campaignValues
	cmd := &cobra.Command{
		Use: name + " ID", Short: short, Args: oneID,
		Example: "  pacer campaign " + name + " spring --rate 500\n  pacer campaign " + name + " slow --rate 150/m --quota provider\n" +
			"  pacer campaign " + name + " warm --rate 500 --ramp start=10,factor=1.5,every=1h",
		RunE: func(cmd *cobra.Command, args []string) error {
			return change(cmd.Context(), c.invocation(cmd), args[0], values.given(cmd))
		},
	}
	f := cmd.Flags()
	f.StringVar(&values.rate, "rate", "", "send_rate: 500 (per second), 2.5, 150/m, 1/h; 0 holds")
	f.StringVar(&values.sink, "sink", "", "name of a configured sink; \"\" for the default one")
	f.StringSliceVar(&values.quotas, "quota", nil, "ids of its quotas, all of them; \"\" for none")
	f.Int64Var(&values.burst, "burst", 0, "units that may be sent at once after idle time")
	f.Int64Var(&values.priorityWeight, "priority-weight", 1, "share of a contended quota")
	f.Int64Var(&values.maxInFlight, "max-in-flight", 0, "most jobs in flight per daemon; 0 for no limit")
	f.StringVar(&values.jobTTL, "job-ttl", "", "jobs older than this expire, such as 36h or 7d; 0s for never")
	f.StringVar(&values.startsAt, "starts-at", "", "do not send before, RFC 3339; none for at once")
	f.StringVar(&values.endsAt, "ends-at", "", "jobs expire then, RFC 3339; none for never")
	f.StringVar(&values.activeHours, "active-hours", "", "when to send, such as \"mon-fri 09:00-21:00; sat 10:00-18:00\"; none for always")
	f.StringVar(&values.timeZone, "time-zone", "UTC", "of the active hours, such as Europe/Moscow")
	f.StringVar(&values.ramp, "ramp", "", "how the rate grows up to --rate: start=10,add=5,every=1m or start=10,factor=1.5,every=1h; none for at once")
	f.StringVar(&values.overflow, "overflow", "", "where jobs wait that do not fit in memory: lane, or block for where they were published")
	f.Int64Var(&values.expectedTotal, "expected-total", 0, "how many jobs there will be, for estimates; 0 for unknown")
	f.StringVar(&values.status, "status", "", "active, paused, cancelled or completed")
	return c.withJSON(cmd)
}

// campaignValues are the values of the flags, given or not.
type campaignValues struct {
	rate, sink, jobTTL, overflow, status              string
	startsAt, endsAt, activeHours, timeZone, ramp     string
	quotas                                            []string
	burst, priorityWeight, maxInFlight, expectedTotal int64
}

// given picks the flags that were given: "not given" and "empty" differ.
func (v *campaignValues) given(cmd *cobra.Command) *app.CampaignFlags {
	return &app.CampaignFlags{
		Rate: given(cmd, "rate", &v.rate), Sink: given(cmd, "sink", &v.sink), Quotas: given(cmd, "quota", &v.quotas),
		Burst: given(cmd, "burst", &v.burst), PriorityWeight: given(cmd, "priority-weight", &v.priorityWeight),
		MaxInFlight: given(cmd, "max-in-flight", &v.maxInFlight), JobTTL: given(cmd, "job-ttl", &v.jobTTL),
		StartsAt: given(cmd, "starts-at", &v.startsAt), EndsAt: given(cmd, "ends-at", &v.endsAt),
		ActiveHours: given(cmd, "active-hours", &v.activeHours), TimeZone: given(cmd, "time-zone", &v.timeZone),
		Ramp:     given(cmd, "ramp", &v.ramp),
		Overflow: given(cmd, "overflow", &v.overflow), ExpectedTotal: given(cmd, "expected-total", &v.expectedTotal),
		Status: given(cmd, "status", &v.status),
	}
}

// given is the flag's value, or nil if the flag was not given.
func given[T any](cmd *cobra.Command, name string, value *T) *T {
	if !cmd.Flags().Changed(name) {
		return nil
	}
	return value
}
