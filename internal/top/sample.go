// Package top turns two samples of a daemon's /metrics into a view for operators: the rate of each campaign, what
// waits, and what is left of the quotas. Watch reads the metrics; the computations are pure.
package top

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// MaxBytes bounds one answer of /metrics, in bytes: enough for several times ten thousand campaigns.
const MaxBytes = 64 << 20

// Sample contains a daemon's metrics at an instant.
type Sample struct {
	At        time.Time
	Version   string
	Campaigns map[string]*Campaign
	Quotas    map[Window]*Quota
	Sinks     map[string]float64 // jobs in flight

	Queued     float64  // jobs in this daemon's memory
	Forfeited  float64  // slots, since the start
	Quantum    float64  // seconds
	ReadFactor float64  // of lanes
	Stalled    float64  // partitions
	Lateness   []bucket // of slots, ascending

	Fleet *Fleet // set if the sample is of all daemons, as a console knows them; then much of a single one is not known
}

// Fleet is what a console says of all daemons.
type Fleet struct {
	Running         int    `json:"daemons_running"`
	Ready           int    `json:"daemons_ready"`
	LateCapacity    *int64 `json:"late_capacity"`    // jobs; nil: not known
	LateDestination *int64 `json:"late_destination"` // likewise
	Degraded        string `json:"degraded,omitempty"`
	// Of the last minute; nil: no daemon tells it, or none has used a slot.
	Forfeited   *float64 `json:"slots_forfeited_per_second"`
	LatenessP99 *float64 `json:"slot_lateness_p99_seconds"` // of the daemon that is latest
}

// Campaign is one campaign's metrics.
type Campaign struct {
	Rate    *float64           // units per second that it may send; nil if it is not in the catalog
	Settled map[string]float64 // jobs by outcome, since the start; those that are not counted are missing
	Sent    *float64           // units per second, of all daemons; nil: it follows from Settled
	Backlog *float64           // jobs; nil if not reported
	ETA     *float64           // seconds; nil if not reported
	Lanes   *float64           // in which its backlog waits; nil if not reported
}

// idle reports whether there is nothing to show: not in the catalog, and nothing settled.
func (c *Campaign) idle() bool {
	for _, n := range c.Settled {
		if n > 0 {
			return false
		}
	}
	return c.Rate == nil && (c.Backlog == nil || *c.Backlog == 0)
}

// Window identifies a window of a quota.
type Window struct{ Quota, Span string }

// Quota is the state of a window.
type Quota struct {
	Remaining, Limit *float64 // units; nil if not reported
	Denied           float64  // asks, since the start
}

// bucket is a bucket of a histogram: the number of observations that were at most le.
type bucket struct{ le, count float64 }

// ErrForeign means that an answer is not that of a daemon.
var ErrForeign = errors.New("these are not the metrics of pacer run")

// reader copies one metric to the sample.
type reader func(*Sample, labels, *dto.Metric)

// labels are the labels of one metric.
type labels map[string]string

// families are the metrics that are read. All others are skipped before they are parsed.
var families = map[string]reader{
	"pacer_build_info": func(s *Sample, l labels, _ *dto.Metric) { s.Version = l["version"] },
	"pacer_campaign_send_rate": func(s *Sample, l labels, m *dto.Metric) {
		s.campaign(l).Rate = gauge(m)
	},
	"pacer_campaign_backlog": func(s *Sample, l labels, m *dto.Metric) {
		s.campaign(l).Backlog = gauge(m)
	},
	"pacer_campaign_eta_seconds": func(s *Sample, l labels, m *dto.Metric) {
		s.campaign(l).ETA = gauge(m)
	},
	"pacer_jobs_settled_total": func(s *Sample, l labels, m *dto.Metric) {
		s.campaign(l).Settled[l["outcome"]] += value(m)
	},
	"pacer_quota_remaining": func(s *Sample, l labels, m *dto.Metric) { s.quota(l).Remaining = gauge(m) },
	"pacer_quota_limit":     func(s *Sample, l labels, m *dto.Metric) { s.quota(l).Limit = gauge(m) },
	"pacer_quota_denied_total": func(s *Sample, l labels, m *dto.Metric) {
		s.quota(l).Denied += value(m)
	},
	"pacer_jobs_in_flight":        func(s *Sample, l labels, m *dto.Metric) { s.Sinks[l["sink"]] += value(m) },
	"pacer_jobs_queued":           func(s *Sample, _ labels, m *dto.Metric) { s.Queued = value(m) },
	"pacer_slots_forfeited_total": func(s *Sample, _ labels, m *dto.Metric) { s.Forfeited += value(m) },
	"pacer_quantum_seconds":       func(s *Sample, _ labels, m *dto.Metric) { s.Quantum = value(m) },
	"pacer_lane_read_factor":      func(s *Sample, _ labels, m *dto.Metric) { s.ReadFactor = value(m) },
	"pacer_partition_stalled":     func(s *Sample, _ labels, m *dto.Metric) { s.Stalled += value(m) },
	"pacer_slot_lateness_seconds": func(s *Sample, _ labels, m *dto.Metric) {
		for _, b := range m.Histogram.GetBucket() {
			s.Lateness = append(s.Lateness, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
		}
	},
}

// value returns the value of a counter or a gauge.
func value(m *dto.Metric) float64 { return m.GetCounter().GetValue() + m.GetGauge().GetValue() }

// gauge returns the value of a gauge; nil if it is not finite, such as an unknown ETA.
func gauge(m *dto.Metric) *float64 {
	if v := m.GetGauge().GetValue(); m.Gauge != nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
		return &v
	}
	return nil
}

func (s *Sample) campaign(l labels) *Campaign {
	id := l["campaign"]
	c := s.Campaigns[id]
	if c == nil {
		c = &Campaign{Settled: map[string]float64{}}
		s.Campaigns[id] = c
	}
	return c
}

func (s *Sample) quota(l labels) *Quota {
	w := Window{l["quota"], l["window"]}
	q := s.Quotas[w]
	if q == nil {
		q = &Quota{}
		s.Quotas[w] = q
	}
	return q
}

// Read parses metrics in the text format. Unknown metrics are skipped; the error is ErrForeign for an answer without
// any metric of a daemon.
func Read(r io.Reader, at time.Time) (*Sample, error) {
	text, err := known(r)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	s := &Sample{At: at, Campaigns: map[string]*Campaign{}, Quotas: map[Window]*Quota{}, Sinks: map[string]float64{}}
	for name, family := range found {
		for _, m := range family.Metric {
			l := make(labels, len(m.Label))
			for _, pair := range m.Label {
				l[pair.GetName()] = pair.GetValue()
			}
			families[name](s, l, m)
		}
	}
	if s.Version == "" {
		return nil, ErrForeign
	}
	return s, nil
}

// known keeps the lines of the families that are read.
func known(r io.Reader) (io.Reader, error) {
	bounded := &io.LimitedReader{R: r, N: MaxBytes + 1}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	var kept bytes.Buffer
	for lines.Scan() {
		if line := lines.Bytes(); wanted(line) {
			kept.Write(line)
			kept.WriteByte('\n')
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, fmt.Errorf("read metrics: %w", lines.Err())
	case bounded.N <= 0:
		return nil, fmt.Errorf("read metrics: the answer is larger than %d bytes", MaxBytes)
	}
	return &kept, nil
}

// suffixes are the suffixes of a histogram's lines.
var suffixes = []string{"_bucket", "_sum", "_count"}

func wanted(line []byte) bool {
	name := string(line)
	if rest, is := strings.CutPrefix(name, "# TYPE "); is {
		name = rest
	}
	if end := strings.IndexAny(name, "{ "); end >= 0 {
		name = name[:end]
	}
	if _, ok := families[name]; ok {
		return true
	}
	return slices.ContainsFunc(suffixes, func(suffix string) bool {
		base, is := strings.CutSuffix(name, suffix)
		_, ok := families[base]
		return is && ok
	})
}
