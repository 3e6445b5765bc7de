package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/requeue"
)

// admitWithin is how long jobs are kept waiting at a time while the broker refuses events, if the watchdog has twice the
// patience: intake slows to a trickle, and the watchdog sees that it is alive.
const admitWithin = 20 * time.Second

// newResults makes the writer of results, nil where none are wanted.
func (p *Parts) newResults(client *kafka.Client, reg prometheus.Registerer) (*requeue.Results, error) {
	if !p.Topics.Results {
		return nil, nil
	}
	return requeue.NewResults(requeue.ResultsOptions{
		Client: client, Prefix: p.Topics.Prefix, Logger: p.Logger, Registerer: reg,
	})
}

// handler is who takes the jobs that are read.
func (d *Daemon) handler() consumer.Handler {
	var h consumer.Handler = d.pacer
	if d.results != nil {
		h = reporting{
			Pacer: d.pacer, results: d.results, report: d.results.Report, patience: min(admitWithin, d.parts.Watchdog/2),
		}
	}
	if d.dedupe != nil {
		h = sifting{Handler: h, ledger: d.dedupe}
	}
	return h
}

// outage tells whether the broker refuses what would settle jobs.
func (d *Daemon) outage() bool {
	return d.relay.Outage() || d.results != nil && !d.results.Healthy()
}

// reporting stands between the consumer and the pacer where results are written: each job is reported before it is
// settled.
type reporting struct {
	*pacer.Pacer
	results  *requeue.Results
	report   func(*delivery.Job, delivery.Outcome)
	patience time.Duration // of an offer
}

// Offer implements consumer.Handler.
func (r reporting) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	if err := r.results.Admit(ctx, r.patience); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		j.Report = r.report
	}
	return r.Pacer.Offer(ctx, jobs)
}

// Drain implements consumer.Handler: the jobs that are settled meanwhile are reported, too.
func (r reporting) Drain(ctx context.Context) (open int, err error) {
	open, err = r.Pacer.Drain(ctx)
	return open + r.results.Drain(ctx), err
}
