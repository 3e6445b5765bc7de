package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
)

// HoldReplays implements replay.Lease for the console and pacer dead replay: letters are chosen by what notes say when a replay
// begins, so that two at a time would publish each letter twice. Without a database nobody is kept from anything.
func (s *Services) HoldReplays(ctx context.Context) (held context.Context, release func(), err error) {
	if s.DSN() == "" {
		return ctx, func() {}, nil
	}
	admin, err := s.admin()
	if err != nil {
		return nil, nil, err
	}
	held, release, err = admin.Hold(ctx, "replay of "+requeue.DeadTopic(s.Topics.Prefix))
	if errors.Is(err, catalog.ErrLocked) {
		err = fmt.Errorf("in another process %w", replay.ErrBusy)
	}
	return held, release, err
}

// maxCounted bounds how many letters a dry run reads.
const maxCounted = 5 * replay.MaxLetters

// replay implements replay.Run: what pacer dead replay does.
func (s *Services) replay(ctx context.Context, r replay.Request, progress func(int)) (replay.Outcome, error) {
	options := deadletter.ReplayOptions{
		Topics:  s.DeadTopics(),
		Ingress: s.Topics.Ingress, Limit: r.Limit, DryRun: r.DryRun, DropExpiry: r.DropExpiry, Progress: progress,
		Filter: deadletter.Filter{
			Campaign: r.Campaign, Reason: delivery.Reason(r.Reason), JobID: r.JobID, Since: r.Since, Until: r.Until,
		},
	}
	for _, text := range r.Places {
		place, ok := view.ParsePlace(text)
		if !ok {
			return replay.Outcome{}, view.Fault(catalog.ErrInvalid, "%q is no place of a dead letter, such as 3/17", notation.Shorten(text))
		}
		options.Places = append(options.Places, place)
	}
	if r.DryRun {
		options.MaxScanned = maxCounted
	} else {
		micros, period, err := notation.ParseRate(r.Rate)
		if err == nil && micros == 0 {
			err = errors.New("a rate of 0 would replay nothing")
		}
		if err == nil {
			options.Rate, err = delivery.NewRate(micros, period)
		}
		if err != nil {
			return replay.Outcome{}, view.Fault(catalog.ErrInvalid, "rate: %s", err)
		}
	}
	report, err := deadletter.Replay(ctx, options)
	switch {
	case errors.Is(err, deadletter.ErrMore):
		err = view.Fault(catalog.ErrInvalid, "more than %d dead letters were read; narrow the time", maxCounted)
	case err != nil && ctx.Err() == nil:
		err = BrokersFault(err)
	}
	return replay.Outcome{
		Matched: report.Matched, Replayed: report.Replayed, Before: report.Before, Truncated: report.Truncated, Expired: report.Expired,
		Oversize: report.Oversize, Doubtful: report.Doubtful,
	}, err
}
