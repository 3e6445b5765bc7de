package progress

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// referenceWindow counts units exactly, each with its time. Times are seconds since the Unix epoch.
type referenceWindow struct {
	delivery.Window
	share float64 // units in a span
	even  bool
	sent  []referenceJob // that still count
	used  float64
	reset float64 // of a fixed window: the end of its period
	due   float64 // of an evenly spent window: when the next unit may go
	quota string
	index int
}

type referenceJob struct{ at, units float64 }

// next returns when that many units may pass, at t or later.
func (w *referenceWindow) next(t, units float64) float64 {
	if w.even {
		t = max(t, w.due)
	}
	if w.Algorithm == delivery.AlgorithmFixed {
		if t < w.reset && w.used+units > w.share {
			return w.reset
		}
		return t
	}
	used := w.used
	for _, j := range w.sent {
		if used+units <= w.share {
			break
		}
		used, t = used-j.units, max(t, j.at+w.Span.Seconds())
	}
	return t
}

func (w *referenceWindow) pass(t, units float64) {
	w.expire(t)
	if w.used == 0 {
		w.reset = t + w.Span.Seconds()
		if w.Anchor != "" {
			w.reset = float64(model.PeriodOf(w.Window, int64(t*1e6))[1]) / 1e6
		}
	}
	w.used += units
	w.due = max(w.due, t) + units*w.Span.Seconds()/w.share
	if w.Algorithm != delivery.AlgorithmFixed {
		w.sent = append(w.sent, referenceJob{t, units})
	}
}

func (w *referenceWindow) expire(t float64) {
	if w.Algorithm == delivery.AlgorithmFixed && t >= w.reset {
		w.used = 0
	}
	for len(w.sent) > 0 && w.sent[0].at+w.Span.Seconds() <= t {
		w.used, w.sent = w.used-w.sent[0].units, w.sent[1:]
	}
}

// state is what a daemon observes of the window.
func (w *referenceWindow) state(t float64) delivery.WindowState {
	w.expire(t)
	s := delivery.WindowState{Quota: w.quota, Window: w.index, Remaining: w.Limit - int64(w.used)}
	micro := func(at float64) int64 { return int64(at * 1e6) }
	switch n := len(w.sent); {
	case n > 0:
		s.ResetAt = micro(w.sent[n-1].at + w.Span.Seconds())
		if s.Remaining == 0 {
			s.FreeAt = micro(w.sent[0].at + w.Span.Seconds())
		}
	case w.used > 0:
		s.ResetAt = micro(w.reset)
	}
	return s
}

// referenceSender is a campaign that sends its jobs one by one. Its share of each window is a window of its own.
type referenceSender struct {
	campaign *delivery.Campaign
	jobs     int64
	windows  []*referenceWindow
	shares   []*referenceWindow
	slot     float64
	longest  time.Duration // of the windows that it has waited for
}

// divide gives each sender its share of each window by weight. The share that one cannot use goes to the others.
func divide(senders []*referenceSender) {
	senders = slices.DeleteFunc(slices.Clone(senders), func(s *referenceSender) bool { return s.jobs == 0 })
	for i, w := range senders[0].windows {
		left, open := float64(w.Limit), slices.Clone(senders)
		for len(open) > 0 {
			weights := 0.0
			for _, s := range open {
				weights += float64(s.campaign.PriorityWeight)
			}
			each := left / weights
			modest := slices.IndexFunc(open, func(s *referenceSender) bool {
				return s.campaign.Rate.PerSecond()*w.Span.Seconds() < each*float64(s.campaign.PriorityWeight)
			})
			if modest < 0 {
				for _, s := range open {
					s.shares[i].share = each * float64(s.campaign.PriorityWeight)
				}
				break
			}
			s := open[modest]
			s.shares[i].share = s.campaign.Rate.PerSecond()*w.Span.Seconds() + 10 // its rate decides
			left -= s.campaign.Rate.PerSecond() * w.Span.Seconds()
			open = slices.Delete(open, modest, modest+1)
		}
	}
}

// next returns when the next job may go, and the longest span of the windows that delay it.
func (s *referenceSender) next(weight float64) (at float64, span time.Duration) {
	for at = s.slot; ; {
		before := at
		if now := unix(at); !s.campaign.Active(now) {
			at = float64(s.campaign.NextChange(now).UnixMicro()) / 1e6
		}
		for _, w := range slices.Concat(s.windows, s.shares) {
			if next := w.next(at, weight); next > at {
				at, span = next, max(span, w.Span)
			}
		}
		if at == before {
			return at, span
		}
	}
}

// reference sends jobs of one weight, those of the first sender until it has sent all, or until a time; it returns when.
func reference(senders []*referenceSender, weight, until float64) (at float64) {
	if len(senders) > 1 {
		for _, s := range senders {
			for _, w := range s.windows {
				s.shares = append(s.shares, &referenceWindow{Window: w.Window, even: w.even})
			}
		}
		divide(senders)
		for _, s := range senders {
			for i, w := range s.windows { // what was used before is used of all shares
				own := s.shares[i]
				own.reset, own.due, own.used = w.reset, w.due, w.used*own.share/w.share
				for _, j := range w.sent {
					own.sent = append(own.sent, referenceJob{j.at, j.units * own.share / w.share})
				}
			}
		}
	}
	for senders[0].jobs > 0 {
		var first *referenceSender
		begin, long := math.Inf(1), time.Duration(0)
		for _, s := range senders {
			if s.jobs == 0 {
				continue
			}
			if next, span := s.next(weight); first == nil || next < begin {
				first, begin, long = s, next, span
			}
		}
		if begin >= until {
			return until
		}
		at = begin
		for _, w := range slices.Concat(first.windows, first.shares) {
			w.pass(at, weight)
		}
		first.jobs, first.longest = first.jobs-1, max(first.longest, long)
		first.slot = max(first.slot, at-1) + weight/first.campaign.Rate.PerSecond() // a job that waits shortly delays no others
		if first.jobs == 0 && first != senders[0] {
			divide(senders)
		}
	}
	return at
}

func unix(at float64) time.Time { return time.UnixMicro(int64(math.Round(at * 1e6))) }
