package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pacer/pacer/internal/testservices"
)

// privateKafka is a private Kafka process of one test, which may be killed and restarted on its data. It costs about three
// seconds and 360 MB: tests that only read and write use the shared one. The methods are safe for concurrent use.
type privateKafka struct {
	brokers []string // never changes

	t       testing.TB
	script  string
	stack   string
	setting string
	mu      sync.Mutex // one command at a time
}

// freshKafka starts a private, empty Kafka and removes it with the test. If the test binary dies without cleaning up,
// the broker runs until scripts/services.sh down, which also stops the checkout's private services. The setting is
// NAME=VALUE of the script's environment, or "".
func freshKafka(t testing.TB, setting string) *privateKafka {
	t.Helper()
	b, env := startServices(t, setting, "kafka")
	b.brokers = strings.Split(env["PACER_KAFKA_BROKERS"], ",")
	return b
}

// startServices starts private services, all if none is named, and removes them with the test. It returns the variables that lead there.
func startServices(t testing.TB, setting string, services ...string) (b *privateKafka, env map[string]string) {
	t.Helper()
	if testing.Short() {
		t.Skip("services are needed: not under -short")
	}
	b = &privateKafka{t: t, script: servicesScript(t), stack: testservices.Unique("test"), setting: setting}
	t.Cleanup(func() {
		if _, err := b.run("wipe"); err != nil {
			t.Errorf("remove private services: %v", err)
		}
	})
	b.do(append([]string{"up"}, services...)...)
	evaluate := exec.Command("bash", "-c", `eval "$1" && env -0`, "bash", b.do("env"))
	evaluate.Env = environment()
	printed, err := evaluate.Output()
	noError(t, err)
	env = map[string]string{}
	for line := range strings.SplitSeq(string(printed), "\x00") {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	return b, env
}

// kill kills the broker, like kill -9.
func (b *privateKafka) kill() { b.do("kill-kafka") }

// start restarts the broker on its data and port, and returns once it answers.
func (b *privateKafka) start() { b.do("start-kafka") }

// restart stops the broker gracefully and starts it again.
func (b *privateKafka) restart() { b.do("restart-kafka") }

// do is run of what has to succeed.
func (b *privateKafka) do(args ...string) string {
	b.t.Helper()
	out, err := b.run(args...)
	noError(b.t, err)
	return out
}

// run calls scripts/services.sh for the private stack and returns what it printed.
func (b *privateKafka) run(args ...string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cmd := exec.Command(b.script, args...)
	cmd.Env = append(os.Environ(), "PACER_STACK="+b.stack)
	if b.setting != "" {
		cmd.Env = append(cmd.Env, b.setting)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("services.sh %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// servicesScript finds scripts/services.sh from any directory in the repository.
func servicesScript(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	noError(t, err)
	for {
		script := filepath.Join(dir, "scripts", "services.sh")
		if _, err := os.Stat(script); err == nil {
			return script
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("scripts/services.sh is not in any folder above the test")
		}
		dir = parent
	}
}
