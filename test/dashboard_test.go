package test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// watched is what an operator has to see: each is on the dashboard or in a rule.
var watched = []string{
	"pacer_quota_remaining", "pacer_quota_limit", "pacer_quota_reset_timestamp_seconds", "pacer_quota_denied_total",
	"pacer_campaign_send_rate", "pacer_campaign_backlog", "pacer_campaign_eta_seconds", "pacer_actionable_lag",
	"pacer_jobs_settled_total", "pacer_jobs_in_flight", "pacer_slot_lateness_seconds", "pacer_slots_forfeited_total",
	"pacer_quantum_seconds", "pacer_take_seconds", "pacer_take_items", "pacer_sink_seconds", "pacer_requeue_hops",
	"pacer_lane_read_factor", "pacer_config_revision", "pacer_build_info",
}

var (
	metricInUse  = regexp.MustCompile(`(?:^|[^:a-z_])(pacer_[a-z_]+)(?:\{([^}]*)\})?`)
	labelMatched = regexp.MustCompile(`([a-z_]+)\s*[=!]`)
	labelsKept   = regexp.MustCompile(`\b(?:by|on|group_left|group_right)\s*\(([^)]*)\)`)
	recordInUse  = regexp.MustCompile(`\b[a-z]+:[a-z_:0-9]+`)
	seriesSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// occasional are metrics that exist only while there is something to show.
var occasional = map[string][]string{
	"pacer_campaign_late":                         {"campaign"},
	"pacer_campaign_held_since_timestamp_seconds": {"campaign", "cause"},
	"pacer_certificate_expiry_timestamp_seconds":  {"service", "certificate"},
}

// addedLabels are on every series that Prometheus has scraped, and on those of histograms.
var addedLabels = []string{"le", "instance", "job"}

// checkDashboard holds the dashboard and the rules against the metrics of a daemon with their labels, so that neither
// goes quietly empty.
func checkDashboard(t *testing.T, families map[string]map[string]bool) {
	for name, labels := range occasional {
		if families[name] == nil {
			families[name] = map[string]bool{}
		}
		for _, label := range labels {
			families[name][label] = true
		}
	}
	used := map[string]bool{}
	rules, records := ruleExpressions(t)
	for source, expressions := range map[string][]string{
		"the dashboard": dashboardExpressions(t), "the rules": rules,
	} {
		if len(expressions) < 5 {
			t.Errorf("%s hold %d expressions; the test looks at the wrong thing", source, len(expressions))
		}
		for _, expression := range expressions {
			known := slices.Clone(addedLabels)
			for _, match := range metricInUse.FindAllStringSubmatch(expression, -1) {
				name := seriesSuffix.ReplaceAllString(match[1], "")
				used[name] = true
				labels, exists := families[name]
				if !exists {
					t.Errorf("%s ask for %s, which pacer does not export", source, name)
					continue
				}
				for label := range labels {
					known = append(known, label)
				}
				for _, label := range labelMatched.FindAllStringSubmatch(match[2], -1) {
					if !labels[label[1]] && !slices.Contains(addedLabels, label[1]) {
						t.Errorf("%s ask for %s by %s, a label that it does not have", source, name, label[1])
					}
				}
			}
			for _, match := range recordInUse.FindAllStringSubmatch(expression, -1) {
				labels, exists := records[match[0]]
				if !exists {
					t.Errorf("%s ask for %s, which no rule records", source, match[0])
				}
				known = append(known, labels...)
			}
			for _, label := range labelsOf(expression) {
				if !slices.Contains(known, label) {
					t.Errorf("%s group by %s, a label that nothing in %s has", source, label, expression)
				}
			}
		}
	}
	for _, name := range watched {
		if !used[name] {
			t.Errorf("neither the dashboard nor a rule looks at %s", name)
		}
	}
}

// TestTheDashboardIsOfOneInstallation: each query selects the installation.
func TestTheDashboardIsOfOneInstallation(t *testing.T) {
	for _, expression := range dashboardExpressions(t) {
		for _, match := range metricInUse.FindAllStringSubmatch(expression, -1) {
			if !strings.Contains(match[2], `job=~"$job"`) {
				t.Errorf("%s is not of one installation in %s", match[1], expression)
			}
		}
		if strings.Contains(expression, "{@") {
			t.Errorf("a selector that is not known in %s", expression)
		}
	}
}

// TestPanelsLeadToTraces: those of durations whose exemplars name traces ask for them, once each.
func TestPanelsLeadToTraces(t *testing.T) {
	asked := map[string]int{}
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			if !target.Exemplar {
				continue
			}
			for _, match := range metricInUse.FindAllStringSubmatch(target.Expr, -1) {
				asked[match[1]]++
			}
		}
	}
	want := map[string]int{"pacer_slot_lateness_seconds_bucket": 1, "pacer_sink_seconds_bucket": 1}
	if !maps.Equal(asked, want) {
		t.Errorf("exemplars are asked for of %v, instead of %v", asked, want)
	}
}

// labelsOf are the labels that an expression groups or matches series by.
func labelsOf(expression string) (labels []string) {
	for _, list := range labelsKept.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			if label = strings.TrimSpace(label); label != "" {
				labels = append(labels, label)
			}
		}
	}
	return labels
}
