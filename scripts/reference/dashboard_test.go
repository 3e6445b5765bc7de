package main

import (
	"bytes"
	"os"
	"testing"
)

// TestTheDashboardIsWhatIsMade compares the committed dashboard with the one that is made.
func TestTheDashboardIsWhatIsMade(t *testing.T) {
	made, err := dashboard()
	if err != nil {
		t.Fatal(err)
	}
	if committed, err := os.ReadFile("../../deploy/grafana/dashboards/pacer.json"); err != nil || !bytes.Equal(committed, made) {
		t.Errorf("deploy/grafana/dashboards/pacer.json is not what is made (%v); run make reference", err)
	}
}
