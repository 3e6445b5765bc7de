package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Broker is a Kafka process of one test's own, which may be killed and started again on its data. It costs
// about three seconds and 360 MB: tests that only read and write use the shared one. The methods are safe for use
// by several goroutines.
type Broker struct {
	Brokers []string // never changes

	script  string
	stack   string
	setting string     // NAME=VALUE of the script's environment, or ""
	mu      sync.Mutex // one command at a time
}

// FreshKafka starts a private, empty Kafka and removes it with the test. A test binary that dies without cleaning
// up leaves it running until scripts/services.sh down, which ends the checkout's private stacks as well.
func FreshKafka(t testing.TB) *Broker {
	t.Helper()
	return freshKafka(t, "")
}

// ProxiedKafka is FreshKafka with a proxy. Clients that begin at the proxy's address stay behind it, since the broker
// tells them no other; Brokers is the way past it.
func ProxiedKafka(t testing.TB) (*Broker, *Proxy) {
	t.Helper()
	skipIfShort(t, "Kafka")
	ports := freePorts(t, 2)
	p := newProxy(t, ports[1], fmt.Sprintf("127.0.0.1:%d", ports[0]))
	return freshKafka(t, fmt.Sprintf("PACER_KAFKA_PROXY=%d:%d", ports[0], ports[1])), p
}

func freshKafka(t testing.TB, setting string) *Broker {
	t.Helper()
	skipIfShort(t, "Kafka")
	b := &Broker{script: servicesScript(t), stack: Unique("test"), setting: setting}
	t.Cleanup(func() {
		if _, err := b.run("wipe"); err != nil {
			t.Errorf("remove the private Kafka: %v", err)
		}
	})
	if _, err := b.run("up", "kafka"); err != nil {
		t.Fatalf("start a private Kafka: %v", err)
	}
	env, err := b.run("env")
	if err != nil {
		t.Fatalf("find the private Kafka: %v", err)
	}
	_, value, found := strings.Cut(env, envKafka+"=")
	if !found {
		t.Fatalf("services.sh env printed no %s:\n%s", envKafka, env)
	}
	b.Brokers = strings.Split(strings.Fields(value)[0], ",")
	return b
}

// Kill ends the broker as kill -9 does.
func (b *Broker) Kill() error {
	_, err := b.run("kill-kafka")
	return err
}

// Start starts the broker again on its data and port, and returns once it answers.
func (b *Broker) Start() error {
	_, err := b.run("start-kafka")
	return err
}

// Restart stops the broker in an orderly way and starts it again.
func (b *Broker) Restart() error {
	_, err := b.run("restart-kafka")
	return err
}

// run calls scripts/services.sh for the private stack and returns what it printed.
func (b *Broker) run(args ...string) (string, error) {
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

// servicesScript finds scripts/services.sh from wherever in the repository the test runs.
func servicesScript(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
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
