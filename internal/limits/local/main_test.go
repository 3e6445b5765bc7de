package local

import (
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	epoch   = limitstest.Epoch
	horizon = limitstest.Horizon
	quantum = limitstest.Quantum
	late    = limitstest.Late
	second  = int64(1_000_000)
)

var (
	ask      = limitstest.Ask
	campaign = limitstest.Campaign
	windows  = limitstest.Windows
	rolling  = limitstest.Rolling
)

// settle makes the campaign's timeline and lets the phase of its first slot pass.
func settle(s *model.Store, now int64, c *delivery.Campaign) int64 {
	s.Take(now, "settler", []delivery.Ask{ask(c, 0)})
	return now + second
}
