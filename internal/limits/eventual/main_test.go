package eventual

import (
	"testing"

	"github.com/pacer/pacer/internal/limits/limitstest"
)

const epoch = limitstest.Epoch

var windows = limitstest.Windows

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
