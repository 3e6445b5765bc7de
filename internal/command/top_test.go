package command

import (
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/top"
)

// An error is one line with its remedy.
func TestTopErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args string
		want string
		code int
	}{
		{"--server http://127.0.0.1:1", "--server 127.0.0.1:1: no answer: connect: connection refused", 1},
		{"", "127.0.0.1:1", 1},
		{"--sort size", "use one of sent, rate", 2},
		{"--interval 1ns", "--interval", 2},
		{"--limit -1", "--limit", 2},
	} {
		environ := []string{"PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer", "PACER_REDIS_ADDRS=127.0.0.1:1"}
		code, _, said := execute(t, environ, append([]string{"top"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: code %d, says %q", c.args, code, said)
		}
	}
}

// TestDaemonsAddUp: what they forfeit is added up, of what is late the worst counts, and one that has sent nothing adds nothing.
func TestDaemonsAddUp(t *testing.T) {
	late, later := 0.001, 0.015
	s := &top.Fleet{}
	addDaemons(s, []progress.Daemon{
		{Queued: 3, Figures: &progress.DaemonFigures{Forfeited: 0.5, LatenessP99: &later, Stalled: 1}}, {Figures: &progress.DaemonFigures{Forfeited: 1, LatenessP99: &late}}, {Figures: &progress.DaemonFigures{}},
	})
	if *s.Forfeited != 1.5 || *s.LatenessP99 != later || s.Stalled != 1 || s.Queued != 3 {
		t.Errorf("%+v", s)
	}
}
