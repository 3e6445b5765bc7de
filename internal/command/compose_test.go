package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composeService is what this package knows of a service in docker-compose.yml.
type composeService struct {
	Image       string
	Command     []string
	HealthCheck struct{ Test []string }
}

func composeServices(t *testing.T) map[string]composeService {
	t.Helper()
	text := try(os.ReadFile("../../docker-compose.yml"))(t)
	var compose struct{ Services map[string]composeService }
	must(t, yaml.Unmarshal(text, &compose))
	return compose.Services
}

// With --help, a command line is parsed and nothing is done: a command or flag that does not exist, or a value that its flag does not
// take, is code 2.
func TestTheServicesAreCommandsThatExist(t *testing.T) {
	services := composeServices(t)
	for _, name := range []string{"pacer-migrate", "pacer", "publisher", "receiver"} {
		command := services[name].Command
		if code, _, stderr := execute(t, nil, append(command, "--help")...); code != 0 || len(command) == 0 {
			t.Errorf("%s: pacer %q: code %d, %s", name, command, code, stderr)
		}
	}
}

func TestTheConfigurationOfComposeIsValid(t *testing.T) {
	file := try(filepath.Abs("../../deploy/pacer.yaml"))(t)
	if code, out, stderr := execute(t, nil, "config", "print", "--config", file); code != 0 || !strings.Contains(out, "http://receiver:9000/deliver") {
		t.Errorf("code %d, %s%s", code, out, stderr)
	}
}

// The health check runs in an image without a shell, so a command that pacer does not have would be noticed only there.
func TestTheHealthCheckIsACommandThatExists(t *testing.T) {
	command := composeServices(t)["pacer"].HealthCheck.Test
	if len(command) < 3 || !slices.Equal(command[:2], []string{"CMD", "/usr/local/bin/pacer"}) {
		t.Fatalf("the health check of pacer is %q", command)
	}
	environ := []string{"PACER_HTTP_LISTEN=127.0.0.1:1"} // and no service at all: it must not want one
	code, stdout, stderr := execute(t, environ, command[2:]...)
	if code != 1 || stderr != "" || !strings.Contains(stdout, "127.0.0.1:1") {
		t.Errorf("without a daemon: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// The service of a package begins with the program and the configuration of the package, and the configuration is valid.
func TestThePackagedServiceFindsItsFiles(t *testing.T) {
	drop := try(os.ReadFile("../../deploy/package/package.conf"))(t)
	if want := "ExecStart=\nExecStart=/usr/bin/pacer run --config /etc/pacer/pacer.yaml\n"; !strings.Contains(string(drop), want) {
		t.Errorf("package.conf is\n%s", drop)
	}
	file := try(filepath.Abs("../../deploy/package/pacer.yaml"))(t)
	if code, _, stderr := execute(t, nil, "config", "print", "--config", file); code != 0 || stderr != "" {
		t.Errorf("code %d, %s", code, stderr)
	}
}
