//go:build e2e

package test

import (
	"testing"
	"time"
)

// TestFigureSMEV is TestRequestsOfSMEV with ten times as many requests and three daemons, to SMEV itself and to the adapter.
func TestFigureSMEV(t *testing.T) {
	r := smevRun{n: 5000, rate: 400, daemons: 3, windows: []window{
		{300, time.Second}, {1200, 5 * time.Second}, {2200, 10 * time.Second}, {4000, 20 * time.Second}, {6000, 40 * time.Second},
	}}
	t.Run("direct", func(t *testing.T) { r.run(t, smevItself(t)) })
	t.Run("adapter", func(t *testing.T) { r.run(t, smevAdapter(t)) })
}
