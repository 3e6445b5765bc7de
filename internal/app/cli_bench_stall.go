package app

import (
	"context"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/delivery"
)

const (
	stallWindow = 10 * time.Second
	stallBegins = 3 * time.Second // into the window
	stallLasts  = 2 * time.Second
	// stallBurst is the stretch after a stall in which what was missed would be sent at once.
	stallBurst = 100 * time.Millisecond
	// stallBlur is by how much requests that left in a stretch may have arrived closer together.
	stallBlur       = 10 * time.Millisecond
	minStalledShare = 0.97
	maxStallDaemons = 3
)

// BenchStallFlags are the flags of `bench stall`.
type BenchStallFlags struct{ Rate string }

// stall suspends one daemon for a while.
type stall struct {
	st     *benchStage
	frozen bench.Window
}

// BenchStall is `pacer bench stall`: one daemon that is suspended for two seconds, and one of three.
func BenchStall(ctx context.Context, in Invocation, flags *BenchStallFlags) error {
	rate, err := benchRate(flags.Rate)
	if err != nil {
		return err
	}
	if slowRate(rate) {
		return usagef("--rate %s is too low to tell a burst from none; use more than %d", flags.Rate, benchSlow)
	}
	if err := benchFits(rate.PerSecond(), int(stallWindow/time.Second)); err != nil {
		return err
	}
	return in.withBench(ctx, maxStallDaemons, func(st *benchStage) (*benchReport, error) {
		report := &benchReport{}
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

func (st *benchStage) stall(ctx context.Context, daemons int, rate delivery.Rate) ([]bench.Fact, error) {
	s := &stall{st: st}
	campaigns := []benchCampaign{{id: fmt.Sprintf("stall-%d", daemons), rate: rate, sink: benchSink("", rate)}}
	run := &benchRun{st: st, campaigns: campaigns, window: stallWindow, during: s.freeze}
	runs, err := st.perform(ctx, daemons, campaigns, []*benchRun{run})
	if err != nil {
		return nil, err
	}
	return s.facts(runs[0]), nil
}

// freeze suspends the first daemon, and lets it run again whatever happens.
func (s *stall) freeze(ctx context.Context) (err error) {
	if !waitUntil(ctx, time.Now().Add(stallBegins)) {
		return nil // whoever cancelled says why
	}
	if err := s.st.daemons[0].Freeze(); err != nil {
		return err
	}
	s.frozen.From = time.Since(s.st.epoch)
	waitUntil(ctx, time.Now().Add(stallLasts))
	s.frozen.To = time.Since(s.st.epoch)
	return s.st.daemons[0].Thaw()
}

// facts are what the stall did to the stream. It is pure.
func (s *stall) facts(run *bench.Run) []bench.Fact {
	stream := run.Stream(0)
	about := fmt.Sprintf("one of %d daemons suspended: ", run.Daemons)
	if run.Daemons == 1 {
		about = "the only daemon suspended: "
	}
	during := run.Window
	during.From, during.To = s.frozen.From, s.frozen.To
	after := bench.Window{From: s.frozen.To, To: s.frozen.To + time.Second}
	burst := bench.MaxRolling(bench.Times(after.Cut(run.Events)), stallBurst)
	tolerance := bench.LateTolerance + stallBlur
	facts := []bench.Fact{
		bench.Told(about+"for", during.Seconds(), "s"),
		bench.Told(about+"jobs in its last second", float64(len(bench.Window{From: during.To - time.Second, To: during.To}.Cut(run.Events))), ""),
		bench.AtMost(about+"most jobs in a rolling second", float64(stream.MaxRolling1s), stream.Rate*bench.RollingTolerance+1, ""),
		bench.AtMost(about+"most jobs in 100 ms of the second after", float64(burst), stream.Rate*(stallBurst+tolerance).Seconds()+1, ""),
		bench.AtMost(about+"jobs lost", float64(stream.Lost), 0, ""),
		bench.AtMost(about+"jobs sent twice", float64(stream.Duplicates), 0, ""),
	}
	if run.Daemons > 1 {
		share := float64(len(during.Cut(run.Events))) / (stream.Rate * during.Seconds())
		facts = append(facts, bench.AtLeast(about+"rate of the others meanwhile", percentOf*share, percentOf*minStalledShare, "%"))
	}
	return facts
}
