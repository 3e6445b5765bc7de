package command

import (
	"cmp"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

// warnCampaign warns of what keeps a campaign that was created or set from sending, or does nothing, and may not be intended.
func (c *cli) warnCampaign(v *view.Campaign) {
	if v.Held != nil {
		switch hold.Cause(v.Held.Cause) {
		case hold.Invalid, hold.Ended, hold.Rate, hold.Sink:
			c.warn("campaign %s sends nothing because %s; to do: %s", v.ID, v.Held.Why, v.Held.Remedy)
		}
	}
	if v.Late != "" {
		c.warn("%s", v.Late)
	}
	micros, per, err := notation.ParseRate(v.Rate)
	rate, errRate := delivery.NewRate(micros, per)
	raw, errRamp := notation.ParseRamp(v.Ramp)
	if raw == nil || rate.Zero() || cmp.Or(err, errRate, errRamp) != nil {
		return
	}
	if ramp, err := notation.DecodeRamp(string(raw), per, time.Now()); err == nil && ramp.Flat(rate) {
		c.warn("the ramp of campaign %s does nothing: it starts at %s, and the rate is %s", v.ID, notation.FormatMicros(ramp.Start), v.Rate)
	}
}
