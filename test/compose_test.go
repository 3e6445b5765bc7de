package test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

// oneShot lists the services that do one thing and exit. All others must be healthy to be of use.
var oneShot = []string{"ingress", "pacer-migrate", "demo-campaign"}

// unasked lists the services that others do not need.
var unasked = []string{"publisher"}

// composeProject reads docker-compose.yml as docker does, with nothing of this machine's environment.
func composeProject(t *testing.T) *types.Project {
	t.Helper()
	root, err := filepath.Abs("..")
	noError(t, err)
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithWorkingDirectory(root))
	noError(t, err)
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return project
}

// TestComposeServices: each service mounts what exists, is healthy or runs once, waits for others to be so, can be reached from this machine
// only, and runs as nobody special.
func TestComposeServices(t *testing.T) {
	t.Parallel()
	project := composeProject(t)
	binds, published := 0, 0
	for name, service := range project.Services {
		binds += checkMounts(t, project, &service)
		checkHealth(t, &service)
		if service.NetworkMode == "host" || service.Privileged {
			t.Errorf("%s is not contained", name)
		}
		for _, port := range service.Ports {
			if published++; port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, port.Published, port.HostIP)
			}
		}
		if !regexp.MustCompile(`^[1-9][0-9]*:[0-9]+$`).MatchString(service.User) {
			t.Errorf("%s runs as user %q; name a number other than 0", name, service.User)
		}
		writable := []string{"kafka", "ingress"} // their image writes its configuration when it starts
		if !service.ReadOnly && !slices.Contains(writable, name) {
			t.Errorf("%s has a writable file system", name)
		}
		if !slices.Contains(service.CapDrop, "ALL") || !slices.Contains(service.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s keeps capabilities", name)
		}
	}
	if binds == 0 || published == 0 {
		t.Error("nothing of this repository is mounted, or no port is published; the test looks at the wrong thing")
	}
}

// checkMounts returns how many folders of this machine the service has.
func checkMounts(t *testing.T, project *types.Project, service *types.ServiceConfig) (binds int) {
	t.Helper()
	for _, volume := range service.Volumes {
		switch volume.Type {
		case types.VolumeTypeBind:
			binds++
			if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
				t.Errorf("%s mounts what is not there, or may write to it: %s, %v", service.Name, volume.Source, err)
			}
		case types.VolumeTypeVolume:
			if _, ok := project.Volumes[volume.Source]; !ok {
				t.Errorf("%s mounts the volume %s, which is not declared", service.Name, volume.Source)
			}
		default:
			t.Errorf("%s has a mount of type %s", service.Name, volume.Type)
		}
	}
	if service.Build != nil {
		if _, err := os.Stat(filepath.Join(service.Build.Context, service.Build.Dockerfile)); err != nil {
			t.Errorf("%s is built from what is not there: %v", service.Name, err)
		}
	}
	return binds
}

func checkHealth(t *testing.T, service *types.ServiceConfig) {
	t.Helper()
	isOneShot := slices.Contains(oneShot, service.Name)
	if isOneShot && service.Restart != types.RestartPolicyNo {
		t.Errorf("%s runs once and has restart: %s", service.Name, service.Restart)
	}
	if !isOneShot && !slices.Contains(unasked, service.Name) && (service.HealthCheck == nil || service.HealthCheck.Disable || len(service.HealthCheck.Test) == 0) {
		t.Errorf("%s has no health check", service.Name)
	}
	for other, dependency := range service.DependsOn {
		want := types.ServiceConditionHealthy
		if slices.Contains(oneShot, other) {
			want = types.ServiceConditionCompletedSuccessfully
		}
		if slices.Contains(unasked, other) || dependency.Condition != want {
			t.Errorf("%s waits for %s to be %s, which has to be %s and asked", service.Name, other, dependency.Condition, want)
		}
	}
}

// TestDigestsPinEveryImage: a tag may be moved, a digest may not. All images have one, also after scripts/digests.sh with a docker that makes
// digests up, twice with different ones. Without one of the images the files stay.
func TestDigestsPinEveryImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []string{"docker-compose.yml", "Dockerfile"}
	before := ""
	noError(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o700))
	for _, name := range append(files, "scripts/digests.sh") {
		text := readFile(t, filepath.Join("..", name))
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
		if name != "scripts/digests.sh" {
			before += text
		}
	}
	pinned := func(docker string) (text string, err error) {
		noError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"+docker), 0o700))
		cmd := exec.Command(filepath.Join(dir, "scripts/digests.sh"))
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		for _, name := range files {
			text += readFile(t, filepath.Join(dir, name))
		}
		return text, err
	}
	image := regexp.MustCompile(`(?m)^(?: *image: +|FROM +)([^ @\n]+)(@sha256:[0-9a-f]{64})?( AS build)?$`)
	check := func(text, digest string) {
		t.Helper()
		found := image.FindAllStringSubmatch(text, -1)
		if len(found) < 9 {
			t.Errorf("%d images; the test looks at the wrong thing", len(found))
		}
		for _, one := range found {
			if (one[2] == "") != (one[1] == "pacer:dev") || digest != "" && one[2] != "" && one[2] != digest {
				t.Errorf("%s is pinned to %q, want %q", one[1], one[2], digest)
			}
		}
	}
	check(before, "")
	for _, digit := range []string{"a", "b"} {
		text, err := pinned("echo sha256:" + strings.Repeat(digit, 64))
		noError(t, err)
		check(text, "@sha256:"+strings.Repeat(digit, 64))
		before = text
	}
	if after, err := pinned("case $* in *redis*) exit 1;; esac; echo sha256:" + strings.Repeat("c", 64)); err == nil || after != before {
		t.Errorf("an image is not there, and the files are changed: %v", err)
	}
}

// One version of Kafka: what is tested is what is looked at.
func TestKafkaIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	image, _, _ := strings.Cut(composeProject(t).Services["kafka"].Image, "@")
	_, version, _ := strings.Cut(image, ":")
	for _, file := range []string{"../scripts/kafka/pom.xml", "../scripts/services/kafka.sh"} {
		text := readFile(t, file)
		if !strings.Contains(text, version) {
			t.Errorf("%s does not speak of Kafka %s, which docker-compose.yml runs", file, version)
		}
	}
}

// One version of Go: the image is built by the one that the tests run with. The tools are built with any.
func TestGoIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	version := func(file, pattern string) string {
		text := readFile(t, file)
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s names no version of Go", file)
		}
		return found[1]
	}
	want := version("../go.mod", `(?m)^go (\d+\.\d+\.\d+)$`)
	if got := version("../Dockerfile", `(?m)^FROM golang:([^@\s-]+)`); got != want {
		t.Errorf("the Dockerfile builds with Go %s, go.mod names %s", got, want)
	}
	for _, file := range []string{"go.mod", "clients/go.mod", "chart/go.mod"} {
		if got := version(file, `(?m)^go (\S+)$`); got != want {
			t.Errorf("test/%s names Go %s, the daemon's %s", file, got, want)
		}
	}
}

func TestProvisionedFilesParse(t *testing.T) {
	files := []string{"../deploy/pacer.yaml"}
	for _, pattern := range []string{"../deploy/prometheus/*.yml", "../deploy/grafana/provisioning/*/*.yml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text := readFile(t, file)
		var content map[string]any
		if err := yaml.Unmarshal([]byte(text), &content); err != nil || len(content) == 0 {
			t.Errorf("%s: %d keys, error %v", file, len(content), err)
		}
	}
}

// panel is one of the dashboard.
type panel struct {
	Title, Description, Type string
	Datasource               struct{ UID string }
	Targets                  []struct {
		Expr     string
		Exemplar bool
	}
}

func dashboard(t *testing.T) []panel {
	t.Helper()
	var board struct{ Panels []panel }
	noError(t, json.Unmarshal([]byte(readFile(t, "../deploy/grafana/dashboards/pacer.json")), &board))
	return board.Panels
}

func dashboardExpressions(t *testing.T) (expressions []string) {
	t.Helper()
	for _, panel := range dashboard(t) {
		if panel.Type == "row" {
			continue
		}
		if panel.Description == "" || panel.Datasource.UID != "prometheus" || len(panel.Targets) == 0 {
			t.Errorf("panel %q lacks a description, the provisioned data source or a query", panel.Title)
		}
		for _, target := range panel.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	return expressions
}

func ruleExpressions(t *testing.T) (expressions []string, records map[string][]string) {
	t.Helper()
	text := readFile(t, "../deploy/prometheus/rules.yml")
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Record, Expr string
				Annotations         map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &rules); err != nil {
		t.Fatalf("rules: %v", err)
	}
	records = map[string][]string{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				records[rule.Record] = append([]string{}, labelsOf(rule.Expr)...)
			}
			if rule.Alert != "" && (rule.Annotations["summary"] == "" || rule.Annotations["description"] == "") {
				t.Errorf("alert %s does not say what it means and what to do", rule.Alert)
			}
			expressions = append(expressions, rule.Expr)
		}
	}
	return expressions, records
}
