package command

import (
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

// warnCampaign warns of what keeps a campaign that was created or set from sending, or does nothing, and may not be intended.
func (c *cli) warnCampaign(row *campaignRow) {
	if held := row.Hold; held != nil {
		switch hold.Cause(held.Cause) {
		case hold.Invalid, hold.Ended, hold.Rate, hold.Sink:
			c.warn("campaign %s sends nothing because %s; to do: %s", row.ID, held.Why, held.Remedy)
		}
	}
	if now := row.Campaign(); now.Ramp != nil && !now.Rate.Zero() && now.Ramp.Flat(now.Rate) {
		c.warn("the ramp of campaign %s does nothing: it starts at %s, and the rate is %s", row.ID, notation.FormatMicros(now.Ramp.Start), row.Rate())
	}
}
