package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// mostBarred bounds what is remembered of jobs in timers that wait for closed destinations.
	mostBarred = 10_000
	// barredFor is how long a job may take to come back from its timer.
	barredFor = 5 * time.Second
)

// barred are the destinations for which jobs of campaigns wait in timers since they are closed: by campaign, and by destination until when
// such a job waits, local time. It is pure; the zero value is empty.
type barred struct {
	until map[string]map[destinationKey]int64
	n     int // destinations of all campaigns
}

// add records that a job waits until then. What is too much is left out.
func (b *barred) add(campaign string, key destinationKey, until int64) {
	of := b.until[campaign]
	if _, known := of[key]; !known {
		if b.n >= mostBarred {
			return
		}
		b.n++
	}
	switch {
	case b.until == nil:
		b.until = map[string]map[destinationKey]int64{campaign: {key: until}}
	case of == nil:
		b.until[campaign] = map[destinationKey]int64{key: until}
	default:
		of[key] = max(of[key], until)
	}
}

// filter keeps what keep returns true for.
func (b *barred) filter(keep func(campaign string, key destinationKey, until int64) bool) {
	for campaign, of := range b.until {
		for key, until := range of {
			if !keep(campaign, key, until) {
				delete(of, key)
				b.n--
			}
		}
		if len(of) == 0 {
			delete(b.until, campaign)
		}
	}
}

// shutOut finds what waits for closed destinations, by campaign.
func (p *Pacer) shutOut(now instant) map[string]*delivery.Shut {
	l := &p.destinations
	all := map[string]*delivery.Shut{}
	seen := map[string]map[*destination]bool{}
	add := func(campaign string, d *destination) *delivery.Shut {
		s := all[campaign]
		if s == nil {
			s = &delivery.Shut{}
			all[campaign], seen[campaign] = s, map[*destination]bool{}
		}
		if seen[campaign][d] {
			return s
		}
		seen[campaign][d] = true
		one := delivery.Shut{Destinations: 1, First: d.name, Since: p.timeOf(d.movedAt), Next: p.timeOf(max(d.openUntil, now.local)), InHand: int64(d.calls.inFlight)}
		if d.tripped {
			one.Since = p.timeOf(d.trippedAt)
		}
		n := s.Destinations + 1
		*s = s.With(one)
		s.Destinations = n
		return s
	}
	for d := range l.lines() {
		for i := range d.line.len() {
			if d.shut {
				add(d.line.at(i).Campaign, d).Jobs++
			}
		}
	}
	l.barred.filter(func(campaign string, key destinationKey, until int64) bool {
		d := l.find(key)
		if until <= now.local || d == nil || !d.shut {
			return false
		}
		add(campaign, d)
		return true
	})
	for campaign, s := range all {
		q := p.queues.byID[campaign]
		if q == nil {
			s.InHand = 0
			continue
		}
		s.InHand = min(s.InHand, int64(q.calls.inFlight))
		for j := range q.released {
			if q.released.of(j).shut {
				s.Jobs++
			}
		}
	}
	return all
}
