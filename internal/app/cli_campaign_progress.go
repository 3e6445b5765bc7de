package app

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// showProgress tells how far a campaign has come, as the daemons said last.
func showProgress(p *printer, g *catalog.CampaignProgress) {
	p.line("delivered\t%d", g.Delivered)
	for _, other := range []struct {
		name string
		jobs int64
	}{{"dead", g.Dead}, {"expired", g.Expired}, {"cancelled", g.Cancelled}} {
		if other.jobs > 0 {
			p.line("%s\t%d", other.name, other.jobs)
		}
	}
	p.line("backlog\t%d", g.Backlog)
	if g.DoneAt != nil {
		p.line("eta\t%s (%s)", formatETA(g), formatInstant(g.DoneAt))
	} else {
		p.line("eta\t%s", formatETA(g))
	}
}

// formatETA rounds to what people can use.
func formatETA(g *catalog.CampaignProgress) string {
	if g.ETASeconds == nil {
		return "-"
	}
	left := time.Duration(*g.ETASeconds * float64(time.Second)).Round(time.Second)
	if days := left / (24 * time.Hour); days > 0 {
		return fmt.Sprintf("%dd%s", days, left%(24*time.Hour)/time.Hour*time.Hour)
	}
	return left.String()
}

func formatPercent(g *catalog.CampaignProgress) string {
	if g.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*g.Percent, 'f', 1, 64) + "%"
}
