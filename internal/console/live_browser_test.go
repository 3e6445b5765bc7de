//go:build browser

package console

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// TestConsoleKeepsItsFiguresInABrowser: if the first answer of the stream is an error, the page keeps its figures, says that it is not live, and asks
// again.
func TestConsoleKeepsItsFiguresInABrowser(t *testing.T) {
	for milliseconds, lost := range map[string]bool{"1500": true, "9000": false} {
		h, asked := serve(newWorld()), atomic.Int32{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/live" && asked.Add(1) == 1 {
				http.Error(w, "a proxy says no", http.StatusBadGateway)
				return
			}
			r.Host = "127.0.0.1:8080"
			h.ServeHTTP(w, r)
		}))
		page, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("CHROMIUM"), "chromium"), "--headless", "--no-sandbox", "--disable-gpu",
			"--timeout=12000", "--virtual-time-budget="+milliseconds, "--dump-dom", server.URL+"/").Output()
		server.CloseClientConnections()
		server.Close()
		body := string(page)
		if err != nil || asked.Load() == 0 || strings.Contains(body, "a proxy says no") || !strings.Contains(body, "Sent / allowed") || strings.Contains(body, `class="lost"`) != lost {
			t.Errorf("after %s ms: %v, asked %d times: %s", milliseconds, err, asked.Load(), body)
		}
	}
}
