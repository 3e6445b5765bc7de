//go:build schemathesis

package test

import (
	"cmp"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheAPIWithstandsSchemathesis: requests that its document allows, requests that it does not, and sequences of them are answered as
// the document says, by a daemon with campaigns, quotas and dead letters. Whatever is asked must be answered: with no 5xx but where a
// service is away, which none is.
func TestTheAPIWithstandsSchemathesis(t *testing.T) {
	program := os.Getenv("SCHEMATHESIS")
	if program == "" {
		t.Fatal("SCHEMATHESIS is not set; run make schemathesis")
	}
	s := newStack(t, stackOptions{partitions: 2, settings: "http: {proxy: {networks: [127.0.0.1/32]}}"})
	s.receiver.fails(http.StatusGone, func(a arrival) bool { return a.campaign == "refused" })
	s.quota("provider", "closed", "300/1m", "5000/1h")
	for _, id := range []string{"steady", "refused"} {
		s.campaign(id, 50)
		s.under("provider", id)
	}
	s.run("destination", "create", "shop-7", "--url", "https://shop-7.example/hook?token=hunter22", "--header", "x-tenant=blue")
	const token = "open-sesame-open-sesame"
	d := s.started("one", "PACER_ADMIN_TOKEN="+token)
	s.publish(mix(map[string]int{"steady": 200, "refused": 40}))
	s.await(30*time.Second, "dead letters", func() bool { return len(s.dead()) == 40 })

	config, err := filepath.Abs("testdata/schemathesis/schemathesis.toml")
	noError(t, err)
	args := []string{
		"--config-file", config, "run", "http://" + d.listen + "/api/v1/openapi.json", "--exclude-path", "/live", // a stream does not end

		"--checks", "all", "--mode", "all", "--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure", "--no-color",
		"--request-timeout", "20", "--max-examples", cmp.Or(os.Getenv("EXAMPLES"), "100"), "--seed", cmp.Or(os.Getenv("SEED"), "1"),
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = t.TempDir() // where it keeps what it has found
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "TOKEN="+token, "PYTHONPATH="+filepath.Dir(config), "SCHEMATHESIS_HOOKS=hooks", "PYTHONDONTWRITEBYTECODE=1")
	err = cmd.Run()
	if file := os.Getenv("REPORT"); file != "" {
		noError(t, os.WriteFile(filepath.Clean(file), []byte(log.String()), 0o600))
	}
	if err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	t.Log(lines[len(lines)-1])
	d.stop()
}
