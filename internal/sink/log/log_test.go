package log_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/log"
)

func TestOneLineWithoutThePayload(t *testing.T) {
	var out bytes.Buffer
	s := log.New(slog.New(slog.NewTextHandler(&out, nil)))
	r := s.Deliver(t.Context(), &delivery.Job{ID: "u-42", Campaign: "spring", Weight: 3, History: delivery.History{Attempt: 2}, Payload: []byte("hunter22")})
	if r.Class != delivery.Delivered {
		t.Errorf("result %+v", r)
	}
	line := out.String()
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "hunter22") {
		t.Errorf("line %q", line)
	}
	for _, want := range []string{"campaign=spring", "job=u-42", "bytes=8", "weight=3", "attempt=3"} {
		if !strings.Contains(line, want) {
			t.Errorf("line %q lacks %s", line, want)
		}
	}
}
