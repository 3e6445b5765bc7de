package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func kinds(list []manifest) (kinds []string) {
	for _, m := range list {
		kinds = append(kinds, m.kind)
	}
	slices.Sort(kinds)
	return kinds
}

func TestTheDefaultsRender(t *testing.T) {
	list := mustRender(t, "pacer", values(t, false, nil))
	want := []string{"ConfigMap", "ConfigMap", "Deployment", "Job", "Pod", "PodDisruptionBudget", "Service"}
	if got := kinds(list); !slices.Equal(got, want) {
		t.Errorf("rendered %v, want %v", got, want)
	}
	d := find(t, list, "Deployment", "pacer").object.(*appsv1.Deployment)
	if *d.Spec.Replicas != 2 || d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 0 {
		t.Errorf("replicas %d, strategy %v", *d.Spec.Replicas, d.Spec.Strategy)
	}
}

func TestEverythingOnRenders(t *testing.T) {
	list := mustRender(t, "prod", values(t, true, nil))
	want := []string{
		"ConfigMap", "ConfigMap", "ConfigMap", "Deployment", "Deployment", "Ingress", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget",
		"PrometheusRule", "ScaledObject", "Service", "Service", "ServiceMonitor",
	}
	if got := kinds(list); !slices.Equal(got, want) {
		t.Errorf("rendered %v, want %v", got, want)
	}
	checkPods(t, list)
	d := find(t, list, "Deployment", "prod-pacer").object.(*appsv1.Deployment)
	if d.Spec.Replicas != nil {
		t.Error("the number of daemons is set beside the autoscaler's")
	}
	service := find(t, list, "Service", "prod-pacer").object.(*corev1.Service)
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Error("the service finds no daemon")
	}
	console := find(t, list, "Deployment", "prod-pacer-console").object.(*appsv1.Deployment)
	if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(console.Spec.Template.Labels)) {
		t.Error("the service of the daemons finds the console")
	}
	pod := console.Spec.Template.Spec
	if env := pod.Containers[0].Env; !slices.Contains(env, corev1.EnvVar{Name: "PACER_POSTGRES_DSN", Value: "file:/etc/pacer/ops/postgres-dsn"}) ||
		!slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "pacer-ops" }) {
		t.Errorf("the console has not the role of operators: %v, %v", env, pod.Volumes)
	}
	if strings.Contains(find(t, list, "Deployment", "prod-pacer").text, "pacer-ops") {
		t.Error("daemons have the role of operators")
	}
	if image := d.Spec.Template.Spec.Containers[0].Image; !strings.Contains(image, "@sha256:") {
		t.Errorf("the digest does not take precedence: %s", image)
	}
}

func podsOf(m manifest) []corev1.PodSpec {
	switch o := m.object.(type) {
	case *appsv1.Deployment:
		return []corev1.PodSpec{o.Spec.Template.Spec}
	case *batchv1.Job:
		return []corev1.PodSpec{o.Spec.Template.Spec}
	case *corev1.Pod:
		return []corev1.PodSpec{o.Spec}
	}
	return nil
}

func checkPods(t *testing.T, list []manifest) {
	t.Helper()
	for _, m := range list {
		for _, pod := range podsOf(m) {
			checkPod(t, list, m, pod)
		}
	}
}

// checkPod holds each pod against what all have: few rights, mounts that exist, and probes of ports that exist.
func checkPod(t *testing.T, list []manifest, m manifest, pod corev1.PodSpec) {
	t.Helper()
	if *pod.AutomountServiceAccountToken || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser != 65532 ||
		pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s %s may more than it needs", m.kind, m.name)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.Name == "config" {
			find(t, list, "ConfigMap", v.ConfigMap.Name)
		}
		if v.Secret != nil && *v.Secret.DefaultMode != 0o440 {
			t.Errorf("%s %s: the secret %s is readable for others: %o", m.kind, m.name, v.Name, *v.Secret.DefaultMode)
		}
	}
	for _, c := range pod.Containers {
		if !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || c.SecurityContext.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s %s: the container may more than it needs", m.kind, m.name)
		}
		for _, mount := range c.VolumeMounts {
			if !volumes[mount.Name] || !mount.ReadOnly {
				t.Errorf("%s %s mounts %s: there %v, read-only %v", m.kind, m.name, mount.Name, volumes[mount.Name], mount.ReadOnly)
			}
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil && !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.String() }) {
				t.Errorf("%s %s probes %s, which is no port", m.kind, m.name, probe.HTTPGet.Port.String())
			}
		}
	}
}

func TestKEDAAndHPAExcludeEachOther(t *testing.T) {
	for kind, want := range map[string]string{"keda": "ScaledObject", "hpa": "HorizontalPodAutoscaler", "none": ""} {
		list := mustRender(t, "prod", values(t, true, map[string]any{"autoscaling": map[string]any{"kind": kind}}))
		for _, m := range list {
			scales := m.kind == "ScaledObject" || m.kind == "HorizontalPodAutoscaler"
			if scales && m.kind != want {
				t.Errorf("%s renders %s", kind, m.kind)
			}
		}
		if want != "" {
			m := find(t, list, want, "prod-pacer")
			if !strings.Contains(m.text, "pacer_actionable_lag") || strings.Contains(m.text, "ignoreNullValues") && !strings.Contains(m.text, `ignoreNullValues: "false"`) {
				t.Errorf("%s scales by something else:\n%s", kind, m.text)
			}
		}
	}
}

// The schema refuses what would render and not work.
func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct{ path, value, says string }{
		{"autoscaling.kind", `"both"`, "autoscaling"},
		{"autoscaling.minReplicas", `0`, "minReplicas"},
		{"config.postgres.dsn", `"postgres://pacer:hunter2@db/pacer"`, "dsn"},
		{"config.redis.password", `"hunter2"`, "password"},
		{"config.http.listen", `"127.0.0.1:9"`, "listen"},
		{"config.http.metrics_listen", `"127.0.0.1:9"`, "metrics_listen"},
		{"service.metricsPort", `8080`, "metricsPort"},
		{"config.shutdown_timeout", `"1m"`, "shutdown_timeout"},
		{"terminationGracePeriodSeconds", `20`, "terminationGracePeriodSeconds"},
		{"secretKeys.redis", `"redis-password"`, "existingSecret is needed"},
		{"replicas", `3`, "replicas"},
		{"image.digest", `"latest"`, "digest"},
		{"console.basePath", `"pacer/"`, "basePath"},
		{"config.sinks.receiver", `{"url": "https://x.example"}`, "type"},
	} {
		var value any
		noError(t, json.Unmarshal([]byte(c.value), &value))
		keys := strings.Split(c.path, ".")
		for _, key := range slices.Backward(keys) {
			value = map[string]any{key: value}
		}
		_, err := render(t, "pacer", value.(map[string]any))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s = %s: %v", c.path, c.value, err)
		}
	}
}

// Metrics at a port of their own are at one that the pods of daemons and of the console have, that Prometheus asks, and that has rules of its own.
func TestMetricsAtAPortOfTheirOwn(t *testing.T) {
	metrics := func(list []corev1.ContainerPort) (port int32) {
		for _, p := range list {
			if p.Name == "metrics" {
				port = p.ContainerPort
			}
		}
		return port
	}
	for want, set := range map[int32]map[string]any{9464: nil, 0: {"service": map[string]any{"metricsPort": 0}}} {
		list := mustRender(t, "prod", values(t, true, set))
		for _, name := range []string{"prod-pacer", "prod-pacer-console"} {
			if got := metrics(find(t, list, "Deployment", name).object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Ports); got != want {
				t.Errorf("%s has the port %d, want %d", name, got, want)
			}
		}
		config := at[string](t, find(t, list, "ConfigMap", "prod-pacer").content, "data", "pacer.yaml")
		monitored := strings.Contains(find(t, list, "ServiceMonitor", "prod-pacer").text, "port: metrics")
		rules := find(t, list, "NetworkPolicy", "prod-pacer").object.(*networkingv1.NetworkPolicy).Spec.Ingress
		own := want > 0
		if strings.Contains(config, "metrics_listen: 0.0.0.0:9464") != own || monitored != own || len(rules) == 2 != own ||
			own && rules[1].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" {
			t.Errorf("port %d: monitored %v, rules %v\n%s", want, monitored, rules, config)
		}
		ports := find(t, list, "Service", "prod-pacer").object.(*corev1.Service).Spec.Ports
		if n := len(ports); n == 2 != own || own && ports[1].Port != want {
			t.Errorf("the service has the ports %v", ports)
		}
	}
}

// The rules and the dashboard are those of deploy/, and the job of a release is one that the rules watch.
func TestMonitoringIsThatOfDeploy(t *testing.T) {
	list := mustRender(t, "prod", values(t, true, nil))
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	noError(t, err)
	if n, want := strings.Count(find(t, list, "PrometheusRule", "prod-pacer").text, "- alert: "), bytes.Count(rules, []byte("- alert: ")); n != want || n == 0 {
		t.Errorf("%d alerts, want %d", n, want)
	}
	find(t, list, "ConfigMap", "prod-pacer-dashboard")
	monitor := find(t, list, "ServiceMonitor", "prod-pacer").text
	job := regexp.MustCompile(`targetLabel: job, replacement: (\S+)}`).FindStringSubmatch(monitor)
	if !strings.Contains(monitor, "scrapeClassicHistograms: true") {
		t.Error("a Prometheus that scrapes native histograms drops those that the rules ask for")
	}
	watched := regexp.MustCompile(`up\{job=~"([^"]+)"\}`).FindSubmatch(rules)
	if job == nil || watched == nil || !regexp.MustCompile("^("+string(watched[1])+")$").MatchString(job[1]) {
		t.Errorf("the rules watch %q, the release is %q", watched, job)
	}
	if scaled := find(t, list, "ScaledObject", "prod-pacer").text; !strings.Contains(scaled, `job="`+job[1]+`"`) {
		t.Errorf("the autoscaler asks for another job than %s:\n%s", job[1], scaled)
	}
}

// The daemon itself reads the configuration that the chart writes, with a secret where the chart mounts it.
func TestTheDaemonReadsTheConfiguration(t *testing.T) {
	binary := os.Getenv("PACER_BIN")
	if binary == "" {
		t.Fatal("PACER_BIN is not set: run make chart, which builds the program")
	}
	list := mustRender(t, "prod", values(t, true, nil))
	const dsn = "postgres://pacer@db/pacer\n"
	for _, name := range []string{"prod-pacer", "prod-pacer-migrate"} {
		dir := t.TempDir()
		text := at[string](t, find(t, list, "ConfigMap", name).content, "data", "pacer.yaml")
		tokens := "alice operator " + strings.Repeat("ab", 32) + "\n"
		for secret, content := range map[string]string{"postgres-dsn": dsn, "kafka-password": dsn, "redis-password": dsn, "receiver-token": dsn, "tokens": tokens} {
			if !strings.Contains(text, "file:/etc/pacer/secrets/"+secret) {
				t.Errorf("%s does not name the secret %s:\n%s", name, secret, text)
			}
			noError(t, os.WriteFile(filepath.Join(dir, secret), []byte(content), 0o600))
		}
		file := filepath.Join(dir, "pacer.yaml")
		noError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "/etc/pacer/secrets", dir)), 0o600))
		printed, err := exec.CommandContext(t.Context(), binary, "config", "print", "--config", file).CombinedOutput()
		if err != nil || !strings.Contains(string(printed), "0.0.0.0:8080") || !strings.Contains(string(printed), "/pacer") {
			t.Errorf("%s: %v\n%s", name, err, printed)
		}
	}
}

// Kubernetes waits for as long as a daemon may take to end.
func TestTheDaemonEndsBeforeItIsKilled(t *testing.T) {
	for grace, want := range map[int64]string{40: "shutdown_timeout: 20s", 200: "shutdown_timeout: 180s"} {
		list := mustRender(t, "prod", values(t, true, map[string]any{"terminationGracePeriodSeconds": grace}))
		d := find(t, list, "Deployment", "prod-pacer").object.(*appsv1.Deployment)
		config := at[string](t, find(t, list, "ConfigMap", "prod-pacer").content, "data", "pacer.yaml")
		if *d.Spec.Template.Spec.TerminationGracePeriodSeconds != grace || !strings.Contains(config, want) {
			t.Errorf("killed after %d s, with\n%s", *d.Spec.Template.Spec.TerminationGracePeriodSeconds, config)
		}
	}
}

// `helm test --logs` reads the log of the pod after its end, so Helm must not have deleted it.
func TestTheLogOfTheTestCanBeRead(t *testing.T) {
	pod := find(t, mustRender(t, "prod", values(t, true, nil)), "Pod", "prod-pacer-check")
	if policy := at[string](t, pod.content, "metadata", "annotations", "helm.sh/hook-delete-policy"); policy != "before-hook-creation" {
		t.Errorf("the pod is deleted by %s", policy)
	}
}

// Migrations use the owner's connection string where there is one, and else the daemons'.
func TestTheConnectionStringOfMigrations(t *testing.T) {
	for _, c := range []struct {
		values       map[string]any
		secret, file string
	}{
		{map[string]any{"existingSecret": "s"}, "s", "postgres-dsn"},
		{map[string]any{"existingSecret": "s", "secretKeys": map[string]any{"postgres": "dsn"}}, "s", "dsn"},
		{map[string]any{"existingSecret": "s", "migrate": map[string]any{"ownerSecret": map[string]any{"key": "owner"}}}, "s", "owner"},
		{map[string]any{"existingSecret": "s", "migrate": map[string]any{"ownerSecret": map[string]any{"name": "o"}}}, "o", "postgres-dsn"},
		{map[string]any{"existingSecret": "s", "secretKeys": map[string]any{"postgres": ""}}, "", ""},
	} {
		pod := podsOf(find(t, mustRender(t, "pacer", c.values), "Job", "pacer-migrate"))[0]
		secret, file := "", ""
		for _, v := range pod.Volumes {
			if v.Name == "owner" {
				secret = v.Secret.SecretName
			}
		}
		for _, e := range pod.Containers[0].Env {
			file = strings.TrimPrefix(e.Value, "file:/etc/pacer/owner/")
		}
		if secret != c.secret || file != c.file {
			t.Errorf("%v: file %q of %q, want %q of %q", c.values, file, secret, c.file, c.secret)
		}
	}
}

// A number is a name of a release for Helm; a label has to be text.
func TestAReleaseThatIsANumber(t *testing.T) {
	mustRender(t, "123", values(t, true, nil))
}

// Where metrics have a port, probes ask there: who reaches the console cannot take all of its connections.
func TestProbesAskWhereOthersDoNotCome(t *testing.T) {
	for want, set := range map[string]map[string]any{"metrics": nil, "http": {"service": map[string]any{"metricsPort": 0}}} {
		for _, name := range []string{"prod-pacer", "prod-pacer-console"} {
			c := find(t, mustRender(t, "prod", values(t, true, set)), "Deployment", name).object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
			if live, ready := c.LivenessProbe.HTTPGet.Port.String(), c.ReadinessProbe.HTTPGet.Port.String(); live != want || ready != want {
				t.Errorf("%s is asked at %s and %s, want %s", name, live, ready, want)
			}
		}
	}
}
