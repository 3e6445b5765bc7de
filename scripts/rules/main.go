// Command rules derives tests of the alerting rules from deploy/prometheus/rules_test.yml. It repeats each firing case with new series,
// beside a second installation, and beside a dead daemon. Each has to fire as it does there.
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// exempt are alerts that cannot fire in a variant, and why.
var exempt = map[string]map[string]string{
	"PacerDestinationsDisabled": {"born": "it compares with what was an hour ago"},
	"PacerDown":                 {"died": "a daemon that has died does not tell it from others", "second": "no series, no installation"},
}

type file struct {
	RuleFiles  []string `yaml:"rule_files"`
	Evaluation string   `yaml:"evaluation_interval"`
	Tests      []test
}

type test struct {
	Name     string `yaml:",omitempty"`
	Interval string
	Series   []series `yaml:"input_series"`
	Checks   []check  `yaml:"promql_expr_test"`
}

type series struct{ Series, Values string }

type check struct {
	Expr    string
	At      string   `yaml:"eval_time"`
	Samples []sample `yaml:"exp_samples"`
}

type sample struct {
	Labels string
	Value  float64
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(from, to string) error {
	text, err := os.ReadFile(from) // #nosec G304 G703 -- it is an argument
	if err != nil {
		return fmt.Errorf("read the tests: %w", err)
	}
	var given file
	if err := yaml.Unmarshal(text, &given); err != nil {
		return fmt.Errorf("read the tests: %w", err)
	}
	made := file{Evaluation: given.Evaluation}
	for _, rules := range given.RuleFiles {
		path, err := filepath.Abs(filepath.Join(filepath.Dir(from), rules))
		if err != nil {
			return fmt.Errorf("find the rules: %w", err)
		}
		made.RuleFiles = append(made.RuleFiles, path)
	}
	for _, t := range given.Tests {
		of := firing.FindStringSubmatch(fmt.Sprint(t.Checks))
		if of == nil {
			continue
		}
		for name, vary := range map[string]func(test) (test, error){"born": born, "second": second, "died": died} {
			if exempt[of[1]][name] != "" {
				continue
			}
			varied, err := vary(t)
			if err != nil {
				return fmt.Errorf("%s: %w", of[1], err)
			}
			varied.Name = of[1] + ", " + name
			made.Tests = append(made.Tests, varied)
		}
	}
	if text, err = yaml.Marshal(made); err != nil {
		return fmt.Errorf("write the tests: %w", err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil { // #nosec G703 -- it is an argument
		return fmt.Errorf("write the tests: %w", err)
	}
	return nil
}

var (
	// firing returns the alert of a case, if one fires.
	firing = regexp.MustCompile(`alertname="(\w+)",alertstate="firing",[^}]*severity`)
	// steady is how the values of a series begin that first has the same one several times.
	steady = regexp.MustCompile(`^-?[0-9.]+x([0-9]+) (.+)$`)
	// moving is a clock.
	moving = regexp.MustCompile(`^([0-9]+)(\+.*)$`)
	first  = regexp.MustCompile(`^-?[0-9.]+`)
)

// born makes the series begin late: 20 scrapes after the others, and with the value that they have after the first steady one.
func born(t test) (test, error) {
	const late = 20
	interval, err := time.ParseDuration(t.Interval)
	if err != nil {
		return t, fmt.Errorf("interval: %w", err)
	}
	t.Series, t.Checks = append([]series(nil), t.Series...), append([]check(nil), t.Checks...)
	for i, s := range t.Series {
		if begin := steady.FindStringSubmatch(s.Values); begin != nil {
			s.Values = "_x" + begin[1] + " " + begin[2]
		}
		if clock := moving.FindStringSubmatch(s.Values); clock != nil && strings.Contains(s.Series, "_timestamp_seconds{") {
			at, _ := strconv.ParseFloat(clock[1], 64) // the pattern has digits only
			s.Values = fmt.Sprint(at+(late*interval).Seconds()) + clock[2]
		}
		t.Series[i].Values = fmt.Sprintf("_x%d %s", late-1, s.Values)
	}
	for i, c := range t.Checks {
		at, err := time.ParseDuration(c.At)
		if err != nil {
			return t, fmt.Errorf("eval_time: %w", err)
		}
		t.Checks[i].At = (at + late*interval).String()
	}
	return t, nil
}

// second adds another installation with the same events: the alert fires once for each.
func second(t test) (test, error) {
	for _, s := range t.Series {
		t.Series = append(t.Series, series{elsewhere(s.Series), s.Values})
	}
	t.Checks = append([]check(nil), t.Checks...)
	for i, c := range t.Checks {
		for _, fired := range c.Samples {
			t.Checks[i].Samples = append(t.Checks[i].Samples, sample{elsewhere(fired.Labels), fired.Value})
		}
	}
	return t, nil
}

func elsewhere(labels string) string {
	return strings.Replace(labels, `job="pacer"`, `job="pacer-eu"`, 1)
}

// died adds a daemon that was there for three scrapes, with the value that the others had first.
func died(t test) (test, error) {
	had := map[string]string{}
	for _, s := range t.Series {
		name := regexp.MustCompile(`instance="\w+"`).ReplaceAllString(s.Series, `instance="gone"`)
		if value := first.FindString(s.Values); value != "" {
			had[name] = value
		}
	}
	for name := range maps.Keys(had) {
		t.Series = append(t.Series, series{name, had[name] + "x2 stale"})
	}
	return t, nil
}
