package pacer

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain keeps the number of simulated runs small unless -rapid.checks asks for more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "12"); err != nil {
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
