package requeue

import (
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/broker"
)

func TestMissingRightsAreSaidOnce(t *testing.T) {
	spec := TopicSpec{Ingress: []string{"jobs"}, Results: true}.withDefaults()
	needs := spec.daemonNeeds()
	if len(needs) != len(spec.Names()) {
		t.Fatalf("%d topics need something, of %d", len(needs), len(spec.Names()))
	}
	missing := map[string][]broker.Operation{"jobs": {broker.OpRead}}
	for topic, operations := range needs {
		if slices.Contains(operations, broker.OpDelete) {
			missing[topic] = []broker.Operation{broker.OpWrite, broker.OpDelete}
		}
	}
	want := []string{
		"the user of kafka.sasl lacks Read on jobs: add these ACLs",
		"the user of kafka.sasl lacks Write, Delete on pacer.lanes, pacer.timer.30m, pacer.timer.30s, pacer.timer.5m, pacer.timer.5s, " +
			"pacer.timer.6h: add these ACLs",
	}
	if got := describeMissing(missing); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
