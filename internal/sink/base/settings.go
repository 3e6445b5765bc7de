package base

import (
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/render"
)

// Limits are the settings of most kinds, whose configurations embed it.
type Limits struct {
	// MaxInFlight is the number of concurrent deliveries of one daemon.
	MaxInFlight int `yaml:"max_in_flight" range:"1..65536"`
	// Timeout bounds a delivery, from opening the connection to the end of the answer.
	Timeout time.Duration `yaml:"timeout" range:"1ms..10m"`
	// MaxRetryAfter is how long a wait that the destination asks for is believed.
	MaxRetryAfter time.Duration `yaml:"max_retry_after" range:"1s..1d"`
	// KeepRejected makes dead letters of rejected jobs.
	KeepRejected bool `yaml:"keep_rejected"`

	access.Secrets
}

// Entry returns what the router needs to know of the sink.
func (l *Limits) Entry() Entry {
	return Entry{MaxInFlight: l.MaxInFlight, Timeout: l.Timeout, MaxRetryAfter: l.MaxRetryAfter, KeepRejected: l.KeepRejected}
}

// OneOf adds the error in a setting that is one of some words, a template, or "".
func (p *Problems) OneOf(key, text string, words []string) {
	if text != "" && !render.IsTemplate(text) && !slices.Contains(words, text) {
		p.Add("%s: unknown; use one of %s", key, strings.Join(words, ", "))
	}
}

// Texts adds the errors in settings that are texts or templates.
func (p *Problems) Texts(texts ...render.Text) {
	_, errs := render.ParseAll(texts...)
	for _, err := range errs {
		p.Note(err)
	}
}
