package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `(pacer_[a-z_]+)` \\| (\\w+) \\| [^|]+ \\| ([^|]*) \\|")
	metricWith = regexp.MustCompile("`([a-z_]+)`: (.+)")
)

// checkMetricsPage holds docs/reference/metrics.md, which is made from a daemon that was never run, against the metrics of one that
// works: no name, type, label or value may be missing.
func checkMetricsPage(t *testing.T, families map[string]*dto.MetricFamily) {
	page := readFile(t, "../docs/reference/metrics.md")
	types, labels := map[string]string{}, map[string]map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		types[row[1]], labels[row[1]] = row[2], map[string][]string{}
		for with := range strings.SplitSeq(row[3], "<br>") {
			if label := metricWith.FindStringSubmatch(with); label != nil {
				labels[row[1]][label[1]] = strings.Split(label[2], ", ")
			}
		}
	}
	for name, family := range families {
		if !strings.HasPrefix(name, "pacer_") {
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); types[name] != kind {
			t.Errorf("%s is a %s, and a %q on the page; run make reference", name, kind, types[name])
		}
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				values := labels[name][label.GetName()]
				if open := len(values) > 0 && strings.HasPrefix(values[0], "("); !open && !slices.Contains(values, label.GetValue()) {
					t.Errorf("%s{%s=%q} is not on the page, which has %q", name, label.GetName(), label.GetValue(), values)
				}
			}
		}
	}
}
