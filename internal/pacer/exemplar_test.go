package pacer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// TestLatenessNamesTraces: those of attempts that are traced, as exemplars; all attempts are counted.
func TestLatenessNamesTraces(t *testing.T) {
	const traced = "4bf92f3577b34da6a3ce929d0e0e4736"
	reg := prometheus.NewPedanticRegistry()
	one(t, newBook(campaign("c", 100)), func(o *Options) { o.Registerer = reg }, func(t *testing.T, f *fleet) {
		list := jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 10)
		f.receiver.setAnswer(func(_ int, j *delivery.Job) (r delivery.Result) {
			if j == list[3] {
				r.TraceID = traced
			}
			return r
		})
		f.offer(t, list)
		time.Sleep(time.Second)
	})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	named, counted := 0, uint64(0)
	for _, family := range families {
		if family.GetName() != "pacer_slot_lateness_seconds" {
			continue
		}
		h := family.GetMetric()[0].GetHistogram()
		counted = h.GetSampleCount()
		for _, b := range h.GetBucket() {
			for _, label := range b.GetExemplar().GetLabel() {
				if named++; label.GetName() != "trace_id" || label.GetValue() != traced {
					t.Errorf("an exemplar has %s %q", label.GetName(), label.GetValue())
				}
			}
		}
	}
	exactly(t, named, 1, "exemplars of one trace")
	exactly(t, counted, 10, "attempts counted")
}
