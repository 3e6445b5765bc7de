package command

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/console/view"
)

func printHeld(p *printer, v *view.Held) {
	p.line("held\t%s", v.Why)
	p.line("held since\t%s", agoOrAhead(v.Since))
	p.line("held until\t%s", agoOrAhead(v.Until))
	p.line("to do\t%s", v.Remedy)
}

// agoOrAhead formats a time with how far off it is.
func agoOrAhead(at *time.Time) string {
	if at == nil {
		return "not known"
	}
	off := time.Until(*at).Round(time.Second)
	switch {
	case off < 0:
		return fmt.Sprintf("%s (%s ago)", instant(at, time.RFC3339), formatSeconds(-off))
	case off == 0:
		return instant(at, time.RFC3339) + " (now)"
	}
	return fmt.Sprintf("%s (in %s)", instant(at, time.RFC3339), formatSeconds(off))
}
