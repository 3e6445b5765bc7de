package results

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
)

// event is the wire form of a result.
type event struct {
	JobID    string `json:"job_id"`
	Campaign string `json:"campaign"`
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"` // of a dead letter
	Attempts int    `json:"attempts"`
	Status   int    `json:"status,omitempty"` // of the last call, if it had one

	ProviderCode      string    `json:"provider_code,omitempty"` // of the last call
	ProviderMessageID string    `json:"provider_message_id,omitempty"`
	GoneSince         time.Time `json:"gone_since,omitzero"` // since when the recipient's token has not been valid

	Origin string `json:"origin"` // <topic>/<partition>/<offset> of the first record

	EnqueuedAt   time.Time `json:"enqueued_at,omitzero"`   // when pacer last moved the job to a lane or a timer
	FirstReadAt  time.Time `json:"first_read_at,omitzero"` // by pacer
	DispatchedAt time.Time `json:"dispatched_at,omitzero"` // the last time
	SettledAt    time.Time `json:"settled_at"`

	SinkLatency  float64 `json:"sink_latency_ms,omitzero"` // of the last call
	TotalLatency float64 `json:"total_latency_ms"`         // from the first read until it was settled
}

func encode(f *finalJob) []byte {
	j := f.job
	e := event{
		JobID: j.ID, Campaign: j.Campaign, Outcome: f.outcome.String(), Attempts: j.Attempt, Origin: j.Origin.String(),
		EnqueuedAt: eventTime(j.EnqueuedAt.Time()), FirstReadAt: eventTime(j.FirstRead), SettledAt: eventTime(f.at),
	}
	if c := j.Call; !c.At.IsZero() {
		e.Status, e.DispatchedAt, e.SinkLatency = int(c.Status), eventTime(c.At), float64(c.Took)/1000
	}
	if p := j.Call.Provider; p != nil {
		e.ProviderCode, e.ProviderMessageID, e.GoneSince = p.Code, p.MessageID, eventTime(p.GoneSince)
	}
	if f.outcome == delivery.OutcomeDead {
		e.Reason = j.Reason
	}
	if !j.FirstRead.IsZero() {
		e.TotalLatency = milliseconds(max(0, f.at.Sub(j.FirstRead)))
	}
	text, err := json.Marshal(&e)
	if err != nil {
		panic(fmt.Sprintf("encode a result: %v", err)) // strings, numbers and times of this century can always be encoded
	}
	return text
}

// eventTime truncates a time to microseconds in UTC; zero stays zero.
func eventTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

type metrics struct {
	written prometheus.Counter
	outage  prometheus.Gauge
}

// newMetrics registers the metrics of the results; a nil registerer leaves them unregistered.
func newMetrics(reg prometheus.Registerer, waiting func() float64) *metrics {
	factory := promauto.With(reg)
	m := &metrics{
		written: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_results_written_total", Help: "Events of settled jobs written and acknowledged.",
		}),
		outage: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_results_outage", Help: "1 while events of settled jobs cannot be written, else 0.",
		}),
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_results_waiting", Help: "Jobs that are not settled because their event is not acknowledged yet.",
	}, waiting)
	return m
}
