package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/retry"
)

const (
	stallWindow = 10 * time.Second
	stallBegins = 3 * time.Second // into the window
	stallLasts  = 2 * time.Second
	// stallBurst is how long after a stall missed jobs would be sent at once.
	stallBurst = 100 * time.Millisecond
	// stallBlur is how much closer together requests sent in an interval may have arrived.
	stallBlur       = 10 * time.Millisecond
	minStalledShare = 0.97
	maxStallDaemons = 3
)

// stall suspends one daemon for a while.
type stall struct {
	st     *environment
	frozen Interval
}

// Stall is `bench stall`: one daemon that is suspended for two seconds, and one of three. The rate is in jobs per second.
func Stall(ctx context.Context, o *Options, perSecond string) (*Report, error) {
	rate, err := parseRate(perSecond)
	if err != nil {
		return nil, err
	}
	if slowRate(rate) {
		return nil, fmt.Errorf("--rate %s is too low to tell a burst from none; use more than %d", perSecond, maxSlowRate)
	}
	if err := fits(rate.PerSecond(), int(stallWindow/time.Second)); err != nil {
		return nil, err
	}
	return o.measure(ctx, maxStallDaemons, func(st *environment) (*Report, error) {
		report := &Report{}
		for _, daemons := range []int{1, maxStallDaemons} {
			facts, err := st.stall(ctx, daemons, rate)
			if err != nil {
				return nil, err
			}
			report.Facts = append(report.Facts, facts...)
		}
		return report, nil
	})
}

func (st *environment) stall(ctx context.Context, daemons int, rate delivery.Rate) ([]Fact, error) {
	s := &stall{st: st}
	campaigns := []campaign{{id: fmt.Sprintf("stall-%d", daemons), rate: rate, sink: sinkFor("", rate)}}
	run := &trial{st: st, campaigns: campaigns, window: stallWindow, during: s.freeze}
	runs, err := st.perform(ctx, daemons, run)
	if err != nil {
		return nil, err
	}
	return s.facts(runs[0]), nil
}

// freeze suspends the first daemon, and always resumes it.
func (s *stall) freeze(ctx context.Context) (err error) {
	if retry.Sleep(ctx, stallBegins) != nil {
		return nil // the caller returns the error of ctx
	}
	if err := s.st.daemons[0].Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.frozen.From = time.Since(s.st.epoch)
	_ = retry.Sleep(ctx, stallLasts) // an early end is no error
	s.frozen.To = time.Since(s.st.epoch)
	return s.st.daemons[0].Signal(syscall.SIGCONT)
}

// facts returns the effects of the stall on the stream. It is pure.
func (s *stall) facts(run *Run) []Fact {
	stream := run.Stream(0)
	about := fmt.Sprintf("one of %d daemons suspended: ", run.Daemons)
	if run.Daemons == 1 {
		about = "the only daemon suspended: "
	}
	during, after := s.frozen, Interval{From: s.frozen.To, To: s.frozen.To + time.Second}
	burst := count.MaxRolling(Times(after.Cut(run.Events)), stallBurst)
	tolerance := count.LateTolerance + stallBlur
	facts := []Fact{
		Told(about+"for", during.Length().Seconds(), "s"),
		Told(about+"jobs in its last second", float64(len(Interval{From: during.To - time.Second, To: during.To}.Cut(run.Events))), ""),
		AtMost(about+"most jobs in a rolling second", float64(stream.MaxRolling1s), stream.Rate*RollingTolerance+1, ""),
		AtMost(about+"most jobs in 100 ms of the second after", float64(burst), stream.Rate*(stallBurst+tolerance).Seconds()+1, ""),
		AtMost(about+"jobs lost", float64(stream.Lost), 0, ""),
		AtMost(about+"jobs sent twice", float64(stream.Duplicates), 0, ""),
	}
	if run.Daemons > 1 {
		share := float64(len(during.Cut(run.Events))) / (stream.Rate * during.Length().Seconds())
		facts = append(facts, AtLeast(about+"rate of the others meanwhile", percentOf*share, percentOf*minStalledShare, "%"))
	}
	return facts
}
