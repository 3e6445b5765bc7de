package progress

import (
	"cmp"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// Daemon is one process of pacer, as it describes itself to those who look at the fleet.
type Daemon struct {
	Name     string    `json:"name" doc:"unique name of the process"`
	Host     string    `json:"host"`
	Address  string    `json:"address,omitempty" doc:"of its HTTP server"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	State    string    `json:"state" doc:"why it is not ready, or what is wrong although it is"`
	Revision int64     `json:"revision" doc:"of the catalog in force"`
	Lanes    int       `json:"lanes" doc:"that it reads"`
	InFlight int64     `json:"in_flight" doc:"jobs that sinks have not answered"`
	Queued   int64     `json:"queued" doc:"jobs in memory"`
	// KafkaAway is since when the daemon reads nothing since no broker answers it; zero: it reads.
	KafkaAway time.Time      `json:"-"`
	Figures   *DaemonFigures `json:"figures"`
}

// Readings are what a daemon counts and measures, at one moment. Counts begin at its start.
type Readings struct {
	Figures   DaemonFigures // of which the daemon sets what it measures
	Forfeited uint64        // slots
	Lateness  metric.Counts // of jobs that used a slot
	Sinks     []SinkReport  // and of each the destinations that answer most; answers since the start
	Keys      []delivery.KeyWaits
}

// answerClasses is how many classes of answers are told of.
const answerClasses = int(delivery.Interrupted) + 1

// DaemonFigures are what a daemon tells of its work. Figures per second, and quantiles, are of the last minute, or since it started.
type DaemonFigures struct {
	Ingress     int     `json:"ingress_partitions" doc:"that it reads"`
	Timers      int     `json:"timer_partitions" doc:"that it reads"`
	Stalled     int     `json:"partitions_stalled" doc:"that make no progress though they could"`
	BufferBytes int64   `json:"buffer_bytes" doc:"held for jobs and for fetches"`
	BufferMost  int64   `json:"max_buffer_bytes"`
	Quantum     float64 `json:"quantum_seconds" doc:"stretch of a campaign's timeline that is asked for at once"`
	Forfeited   float64 `json:"slots_forfeited_per_second" doc:"slots given up because they could not be used in time, over the last minute"`
	// How late are jobs that were passed to their sinks.
	LatenessP50 *float64 `json:"slot_lateness_p50_seconds,omitempty" doc:"how long after their slots jobs were passed to sinks within the last minute, within an eighth; absent if none was"`
	LatenessP99 *float64 `json:"slot_lateness_p99_seconds,omitempty" doc:"likewise"`

	Sinks []SinkCalls `json:"sinks" doc:"the first 32 by name"`
}

// SinkCalls are the calls of a daemon to one of its sinks.
type SinkCalls struct {
	Sink     string `json:"sink"`
	InFlight int64  `json:"in_flight" doc:"jobs that it has not answered"`
	Most     int64  `json:"max_in_flight"`
}

// SinkReport is what daemons tell of a sink, or of a destination of it, together, of the last minute. Of a destination they tell only answers.
type SinkReport struct {
	Sink           string
	Of             string // the destination; "": the whole sink
	Daemons        int    // that have it
	InFlight, Most int64
	Answers        [answerClasses]float64 // per second, by delivery.ResultClass
	Took           metric.Counts          // to answer
	Failure        delivery.Failure       // the last one, however long ago
}

const (
	// maxSinks and maxDestinations bound the sinks that a daemon, or a summary, reports on, the first ones in the order of their names, and the
	// destinations, those that answer most.
	maxSinks, maxDestinations = 32, 100
	// reportOver is over how long reports count, and markEvery how often readings are kept for that.
	reportOver = time.Minute
	markEvery  = 5 * time.Second
)

// recent makes reports of readings: it keeps those of the last minute, to compare with.
type recent struct {
	started time.Time // of the daemon
	marks   []mark    // the oldest first; never empty
}

type mark struct {
	at time.Time
	Readings
}

// newRecent makes one that has counted nothing when the daemon started.
func newRecent(started time.Time) recent { return recent{started, []mark{{at: started}}} }

// report returns what has happened within the last minute, or since the start.
func (x *recent) report(now time.Time, r Readings) (*DaemonFigures, []SinkReport) {
	for len(x.marks) > 1 && now.Sub(x.marks[1].at) >= reportOver {
		x.marks = x.marks[1:]
	}
	before := &x.marks[0]
	seconds := max(now.Sub(before.at), exchangeEvery).Seconds() // the first exchange may come at once
	figures := r.Figures
	figures.Forfeited = float64(r.Forfeited-before.Forfeited) / seconds
	if late := r.Lateness.Since(&before.Lateness); late.Total() > 0 {
		half, most := late.Quantile(0.5).Seconds(), late.Quantile(0.99).Seconds()
		figures.LatenessP50, figures.LatenessP99 = &half, &most
	}
	var sinks []SinkReport
	for i := range r.Sinks {
		s, was := &r.Sinks[i], &SinkReport{}
		if at := slices.IndexFunc(before.Sinks, func(b SinkReport) bool { return b.Sink == s.Sink && b.Of == s.Of }); at >= 0 {
			was = &before.Sinks[at]
		}
		one := *s
		one.Daemons, one.Took = 1, s.Took.Since(&was.Took)
		for class, n := range s.Answers {
			one.Answers[class] = max(0, n-was.Answers[class]) / seconds
		}
		if sinks = append(sinks, one); s.Of == "" && len(figures.Sinks) < maxSinks {
			figures.Sinks = append(figures.Sinks, SinkCalls{s.Sink, s.InFlight, s.Most})
		}
	}
	if now.Sub(x.marks[len(x.marks)-1].at) >= markEvery {
		x.marks = append(x.marks, mark{now, r})
	}
	return &figures, bounded(sinks)
}

// sinkKey names a sink, or a destination of it.
type sinkKey struct{ sink, of string }

// addSinks adds what another daemon tells of its sinks to what those before told.
func addSinks(all map[sinkKey]*SinkReport, told []SinkReport) {
	for i := range told {
		s := &told[i]
		key := sinkKey{s.Sink, s.Of}
		sum := all[key]
		if sum == nil {
			sum = &SinkReport{Sink: s.Sink, Of: s.Of}
			all[key] = sum
		}
		sum.Daemons, sum.InFlight, sum.Most = sum.Daemons+s.Daemons, sum.InFlight+s.InFlight, sum.Most+s.Most
		for class, n := range s.Answers {
			sum.Answers[class] += n
		}
		sum.Took.Add(&s.Took)
		if s.Failure.At.After(sum.Failure.At) {
			sum.Failure = s.Failure
		}
	}
}

func summed(all map[sinkKey]*SinkReport) (list []SinkReport) {
	for _, s := range all {
		list = append(list, *s)
	}
	return bounded(list)
}

// bounded returns as many reports as are told of: of sinks, and then of destinations.
func bounded(list []SinkReport) []SinkReport {
	slices.SortFunc(list, func(a, b SinkReport) int {
		if a.Of == "" || b.Of == "" {
			return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Sink, b.Sink))
		}
		return cmp.Or(cmp.Compare(b.answers(), a.answers()), cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Of, b.Of))
	})
	sinks := slices.IndexFunc(list, func(s SinkReport) bool { return s.Of != "" })
	if sinks < 0 {
		sinks = len(list)
	}
	kept := min(sinks, maxSinks)
	return append(list[:kept:kept], list[sinks:min(len(list), sinks+maxDestinations)]...)
}

// answers is how many there are a second.
func (s *SinkReport) answers() (sum float64) {
	for _, n := range s.Answers {
		sum += n
	}
	return sum
}
