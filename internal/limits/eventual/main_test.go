package eventual

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const epoch = int64(1_790_000_000_000_000)

func windows(spec ...any) []delivery.Window {
	var out []delivery.Window
	for i := 0; i < len(spec); i += 2 {
		out = append(out, delivery.Window{Limit: int64(spec[i].(int)), Span: spec[i+1].(time.Duration), Algorithm: "sliding"})
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
