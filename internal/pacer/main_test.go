package pacer

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/testservices"
)

// TestMain keeps the number of simulated runs small unless -rapid.checks asks for more: smaller under the race detector.
func TestMain(m *testing.M) {
	checks := "12"
	if testservices.Raced {
		checks = "4"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	flag.Parse()
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
