package http

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestNoSecretIsShown: not what an address, a header or an answer holds of them, also where the destination repeats it.
func TestNoSecretIsShown(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Auth-Token", "swordfish-1")
		w.Header().Add("Set-Cookie", "sid=swordfish-2")
		w.Header().Set("X-Path", r.URL.Path)
		_, _ = w.Write([]byte(`{"id":"m-7","access_token":"swordfish-3\"x", "Password" : "swordfish-4","auth":"` + r.Header.Get("Authorization") + `","refresh_token":"swordfish-5`))
	})
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(address+"/services/T0-swordfish"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSink(t, Config{}, func(c *Config) {
		c.Bearer = "swordfish-6"
		c.SecretFrom("url", func() (string, error) { b, err := os.ReadFile(file); return string(b), err })
		c.URL = address + "/services/T0-swordfish"
	})
	res, request, answer := s.Try(t.Context(), job())
	if all := request + answer; res.Class != delivery.Delivered || strings.Contains(all, "swordfish") || !strings.Contains(answer, `"id":"m-7","access_token":"***"`) ||
		!strings.Contains(request, "POST "+address+"***\n") {
		t.Errorf("%+v\n%s\n%s", res, request, answer)
	}
}
