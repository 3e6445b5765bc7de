package chart

import (
	"os"
	"regexp"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
)

// The values of the page render, and are what the page says.
func TestTheValuesOfThePageRender(t *testing.T) {
	page, err := os.ReadFile("../../docs/howto/kubernetes.md")
	noError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of yaml, want one", len(blocks))
	}
	v, err := chartutil.ReadValues(blocks[0][1])
	noError(t, err)
	list := mustRender(t, "pacer", v)
	checkPods(t, list)
	if d := find(t, list, "Deployment", "pacer").object.(*appsv1.Deployment); *d.Spec.Replicas != 3 {
		t.Errorf("%d daemons", *d.Spec.Replicas)
	}
}
