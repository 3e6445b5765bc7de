package test

import (
	"regexp"
	"strings"
	"testing"
)

var (
	alertName  = regexp.MustCompile(`(?m)^      - alert: (\w+)$`)
	runbookURL = regexp.MustCompile(`(?m)^          runbook_url: https://github\.com/pacer/pacer/blob/main/docs/runbook\.md#(\w+)$`)
	firedAlert = regexp.MustCompile(`ALERTS\{alertname="(\w+)",alertstate="firing",[^}]*\}', value: 1`)
	runbookFor = regexp.MustCompile(`(?m)^## (Pacer\w+)$`)
)

// names are the first groups of all matches in a file, with how often each occurs.
func names(t *testing.T, file string, pattern *regexp.Regexp) map[string]int {
	t.Helper()
	text := readFile(t, file)
	found := map[string]int{}
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found[match[1]]++
	}
	if len(found) == 0 {
		t.Fatalf("%s has nothing that matches %s; the test looks at the wrong thing", file, pattern)
	}
	return found
}

// Each alert fires in a test of its own (make rules runs them), links to its heading in the runbook, and has one there.
func TestEveryAlertHasATestAndARunbook(t *testing.T) {
	const rules = "../deploy/prometheus/rules.yml"
	alerts, headings := names(t, rules, alertName), names(t, "../docs/runbook.md", runbookFor)
	links, fired := names(t, rules, runbookURL), names(t, "../deploy/prometheus/rules_test.yml", firedAlert)
	for alert, n := range alerts {
		if n != 1 || headings[alert] != 1 || links[strings.ToLower(alert)] != 1 {
			t.Errorf("alert %s: %d times in the rules, with %d links and %d headings of the runbook", alert, n, links[strings.ToLower(alert)], headings[alert])
		}
		if fired[alert] == 0 {
			t.Errorf("no test makes alert %s fire", alert)
		}
	}
	for heading := range headings {
		if alerts[heading] == 0 {
			t.Errorf("the runbook speaks of %s, which is no alert", heading)
		}
	}
}
