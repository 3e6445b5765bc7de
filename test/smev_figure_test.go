//go:build e2e

package test

import (
	"testing"
	"time"
)

// TestFigureSMEV is TestRequestsOfSMEV with ten times as many requests.
func TestFigureSMEV(t *testing.T) {
	smevRequests(t, 5000, 400, window{300, time.Second}, window{1200, 5 * time.Second}, window{2200, 10 * time.Second},
		window{4000, 20 * time.Second}, window{6000, 40 * time.Second})
}
