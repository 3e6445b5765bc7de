// Package chart renders deploy/helm/pacer as Helm does, and holds the result against the types of Kubernetes.
package chart

import (
	"flag"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

const folder = "../../deploy/helm/pacer"

// out is where the manifests are left for other tools; `make chart` has them looked at with the schemas of Kubernetes.
var out = flag.String("out", "", "write the rendered manifests into this folder")

// manifest is one rendered document.
type manifest struct {
	kind, name, text string
	object           runtime.Object // of the types that are Kubernetes' own; nil for those of others
	content          map[string]any
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	log.SetOutput(io.Discard) // where a link is followed, it says so each time
	c, err := loader.Load(folder)
	noError(t, err)
	return c
}

// values are those of the file ci/all.yaml, or none, with some set as by --set.
func values(t *testing.T, all bool, set map[string]any) map[string]any {
	t.Helper()
	v := map[string]any{}
	if all {
		var err error
		if v, err = chartutil.ReadValuesFile(filepath.Join(folder, "ci/all.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	return chartutil.CoalesceTables(set, v)
}

// render is `helm template`: the values are checked by their schema, and the manifests returned in no order.
func render(t *testing.T, release string, v map[string]any) ([]manifest, error) {
	t.Helper()
	c := load(t)
	options := chartutil.ReleaseOptions{Name: release, Namespace: "delivery", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, v, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	var list []manifest
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for text := range strings.SplitSeq(files[file], "\n---\n") {
			if m := parse(t, file, text); m.kind != "" {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// strict knows every type of Kubernetes and refuses a field that none has.
var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

func parse(t *testing.T, file, text string) (m manifest) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &m.content); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, text)
	}
	if m.content == nil {
		return m // all of it was under an if
	}
	m.text, m.kind = text, m.content["kind"].(string)
	m.name = at[string](t, m.content, "metadata", "name")
	if at[string](t, m.content, "metadata", "labels", "app.kubernetes.io/name") == "" {
		t.Errorf("%s %s has no labels", m.kind, m.name)
	}
	if slices.Contains([]string{"ScaledObject", "ServiceMonitor", "PrometheusRule"}, m.kind) {
		return m
	}
	var err error
	if m.object, _, err = strict.Decode([]byte(text), nil, nil); err != nil {
		t.Errorf("%s: %v\n%s", file, err, text)
	}
	return m
}

// at walks maps by their keys.
func at[T any](t *testing.T, v any, keys ...string) (value T) {
	t.Helper()
	for _, key := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return value
		}
		v = m[key]
	}
	value, _ = v.(T)
	return value
}

func mustRender(t *testing.T, release string, v map[string]any) []manifest {
	t.Helper()
	list, err := render(t, release, v)
	noError(t, err)
	if *out != "" {
		var text strings.Builder
		for _, m := range list {
			if m.object != nil {
				text.WriteString("---\n" + m.text + "\n")
			}
		}
		name := strings.NewReplacer("/", "-").Replace(t.Name()) + ".yaml"
		noError(t, os.WriteFile(filepath.Join(*out, name), []byte(text.String()), 0o600))
	}
	return list
}

// find returns the one manifest of a kind and name.
func find(t *testing.T, list []manifest, kind, name string) manifest {
	t.Helper()
	var found []manifest
	for _, m := range list {
		if m.kind == kind && m.name == name {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d manifests of %s %s", len(found), kind, name)
	}
	return found[0]
}

// noError ends the test with an error.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
