package command

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What goes wrong is said in one line with its remedy.
func TestTopErrors(t *testing.T) {
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "localhost") {
			http.NotFound(w, r)
		}
	}))
	defer foreign.Close()
	addr := strings.TrimPrefix(foreign.URL, "http://")
	_, port, _ := strings.Cut(addr, ":")
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args string
		env  string
		want string
		code int
	}{
		{"--addr 127.0.0.1:1", "", "no daemon answers at 127.0.0.1:1: ", 1},
		{"", "PACER_HTTP_LISTEN=127.0.0.1:1", "start pacer run, or name another with --addr", 1},
		{"", "PACER_HTTP_LISTEN=off", "http.listen: off", 2},
		{"", "PACER_HTTP_METRICS_LISTEN=127.0.0.1:2", "no daemon answers at 127.0.0.1:2: ", 1},
		{"--addr nonsense", "", "is not host:port", 2},
		{"--sort size --addr " + addr, "", "use one of sent, rate", 2},
		{"--interval 1ns --addr " + addr, "", "--interval", 2},
		{"--limit -1 --addr " + addr, "", "--limit", 2},
		{"--addr " + addr, "", "not the metrics of pacer run", 1},
		{"--addr localhost:" + port, "", "404 Not Found", 1},
	} {
		code, _, said := execute(t, []string{c.env}, append([]string{"top"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: code %d, says %q", c.args, code, said)
		}
	}
}
