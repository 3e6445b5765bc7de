package command

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The health check runs in an image without a shell, so a command that pacer does not have would be noticed only there.
func TestTheHealthCheckIsACommandThatExists(t *testing.T) {
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			HealthCheck struct{ Test []string }
		}
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	command := compose.Services["pacer"].HealthCheck.Test
	if len(command) < 3 || !slices.Equal(command[:2], []string{"CMD", "/usr/local/bin/pacer"}) {
		t.Fatalf("the health check of pacer is %q", command)
	}
	environ := []string{"PACER_HTTP_LISTEN=127.0.0.1:1"} // and no service at all: it must not want one
	code, stdout, stderr := execute(t, environ, command[2:]...)
	if code != 1 || stderr != "" || !strings.Contains(stdout, "127.0.0.1:1") {
		t.Errorf("without a daemon: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
