package test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/segmentio/kafka-go"
)

// notMetrics are names in the sources that look like a metric's and are none.
var notMetrics = map[string]bool{"pacer_catalog": true, "pacer_test": true}

// tracedBy is the trace of a job's producer.
var tracedBy = []byte("\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c")

// checkExemplars: a scrape that asks for OpenMetrics is told of the attempt that was traced.
func checkExemplars(t *testing.T, d *daemon) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+d.listen+"/metrics", nil)
	noError(t, err)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer, err := http.DefaultClient.Do(request)
	noError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	noError(t, err)
	for _, name := range []string{"pacer_sink_seconds", "pacer_slot_lateness_seconds"} {
		if !regexp.MustCompile(`(?m)^` + name + `_bucket\{.*\} \d+ # \{trace_id="[0-9a-f]{32}"\} `).Match(body) {
			t.Errorf("%s names no trace", name)
		}
	}
}

// everyMetric runs a daemon through all that makes a metric appear, and returns it once the last one is there.
func (s *stack) everyMetric() *daemon {
	s.t.Helper()
	s.quota("tight", "closed", "5/1h")
	s.run("quota", "set", "shadow", "--window", "1/1h", "--mode", "shadow")
	s.run("quota", "set", "eventual", "--window", "1000/1s", "--mode", "eventual")
	jobs := map[string]int{}
	s.run("quota", "set", "cap", "--per", "to", "--window", "1/1h")
	for _, c := range []string{"tight", "shadow", "eventual"} {
		s.campaign(c, 20)
		s.under(c, c)
		jobs[c] = 200
	}
	s.campaign("cap", 20)
	s.under("cap", "cap")
	s.sql(`UPDATE pacer.campaigns SET expected_total = 1000000, finish_by = now() + interval '1 hour' WHERE id = 'cap'`)
	twice := job{campaign: "shadow", id: "twice", headers: []kafka.Header{
		{Key: "traceparent", Value: fmt.Appendf(nil, "00-%x-b7ad6b7169203331-01", tracedBy)},
		header("content-type", "application/json"),
	}}
	failed := false
	s.receiver.mu.Lock()
	s.receiver.answer = func(a arrival) (status int, wait time.Duration) {
		if a.campaign == "eventual" && !failed {
			failed = true
			return http.StatusInternalServerError, 0
		}
		return http.StatusOK, 0
	}
	s.receiver.mu.Unlock()
	d := s.started("daemon")
	d.body("/")
	s.publish([]job{twice})
	s.await(20*time.Second, "a job", func() bool { return s.receiver.count("shadow") > 0 })
	s.publish(append(mix(jobs), twice, keyed("cap", "a", 1), keyed("cap", "a", 2)))
	s.await(time.Minute, "metrics that only work makes appear", func() bool {
		families := d.gather()
		for _, name := range []string{
			"pacer_quota_denied_total", "pacer_quota_shadow_denied_total", "pacer_duplicates_suppressed_total",
			"pacer_campaign_eta_seconds", "pacer_campaign_backlog", "pacer_eventual_overshoot_bound_units", "pacer_sink_seconds",
			"pacer_quota_remaining", "pacer_campaign_held_since_timestamp_seconds", "pacer_http_requests_total", "pacer_campaign_last_error_timestamp_seconds",
			"pacer_key_waiting_jobs", "pacer_campaign_overdue_seconds",
		} {
			if families[name] == nil {
				return false
			}
		}
		return true
	})
	return d
}

// gather are the daemon's own metrics by name, with the names of their labels.
func (d *daemon) gather() map[string]map[string]bool {
	d.s.t.Helper()
	names := map[string]map[string]bool{}
	for name, family := range d.families() {
		if !strings.HasPrefix(name, "pacer_") {
			continue
		}
		names[name] = map[string]bool{}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				names[name][label.GetName()] = true
			}
		}
	}
	return names
}

// families are the daemon's metrics as Prometheus reads them.
func (d *daemon) families() map[string]*dto.MetricFamily {
	d.s.t.Helper()
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(bytes.NewReader(d.body("/metrics")))
	if err != nil {
		d.s.t.Fatalf("metrics of %s: %v", d.name, err)
	}
	return families
}

// headerNames are the headers of the requests so far, those of HTTP itself apart.
func (r *receiver) headerNames() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.headers {
		if name != "Content-Length" && name != "Accept-Encoding" {
			list = append(list, "request header "+name)
		}
	}
	return list
}

// literals are the texts in the program's sources that match the pattern as a whole.
func literals(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	whole := regexp.MustCompile("^(" + pattern + ")$")
	found := map[string]bool{}
	for _, root := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil && whole.MatchString(text) {
						found[text] = true
					}
				}
				return true
			})
			return nil
		})
		noError(t, err)
	}
	return found
}
