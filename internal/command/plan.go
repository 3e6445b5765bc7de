package command

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/progress"
)

func (c *cli) plan() *cobra.Command {
	var what view.WhatIf
	cmd := c.ofID("plan", "When a campaign will be done, and which rate that takes", func(ctx context.Context, id string) error {
		query := url.Values{"rate": {what.Rate}, "finish_by": {what.FinishBy}, "pause": what.Pause}
		return ask(ctx, c, http.MethodGet, campaignPath(id)+"/plan", query, nil, printPlan)
	})
	cmd.Long = `Prints how many jobs of a campaign are left, the rate that sends them until its finish_by, what each quota leaves to it, and when
it will be done. The flags say what to assume instead of what is set. They change nothing.`
	cmd.Example = "  pacer plan spring\n  pacer plan spring --rate 500 --finish-by 18:00 --pause autumn"
	f := cmd.Flags()
	f.StringVar(&what.Rate, "rate", "", "as if this were its send_rate")
	f.StringVar(&what.FinishBy, "finish-by", "", "as if this were its finish_by")
	f.StringArrayVar(&what.Pause, "pause", nil, "as if this other `CAMPAIGN` were paused; may be repeated")
	return c.withServer(cmd, config.NeedPostgres, config.NeedRedis)
}

func printPlan(p *printer, plan *progress.Plan) {
	perSecond := func(rate float64) string { return strconv.FormatFloat(rate, 'g', 6, 64) + "/s" }
	finish := "-"
	if plan.FinishBy != nil {
		finish = agoOrAhead(plan.FinishBy)
	}
	p.line("jobs left\t%d", plan.Jobs)
	p.line("send rate\t%s", perSecond(plan.SendRate))
	p.line("finish by\t%s", finish)
	if plan.Needed != nil {
		p.line("rate needed\t%s", perSecond(*plan.Needed))
	}
	for _, q := range plan.Quotas {
		p.line("quota %s\tleaves %s", q.Quota, perSecond(q.PerSecond))
	}
	p.line("done at\t%s", agoOrAhead(plan.DoneAt))
	if plan.Late != nil {
		p.line("late\tit %s", plan.Late)
	}
}
