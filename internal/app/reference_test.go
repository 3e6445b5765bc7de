package app

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/smev"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md")

// labels are what the values of labels are, where these are not all shown by a daemon that has just begun. A label whose values
// are the operator's has a few words, in parentheses.
var labels = map[string][]string{
	"campaign":    {"(id, or `(unknown)`, `(others)`)"},
	"quota":       {"(id)"},
	"window":      {"(length, such as 1h)"},
	"sink":        {"(name)"},
	"topic":       {"(name)"},
	"shard":       {"(number, from 0)"},
	"destination": {"(id, or `(others)`)"},
	"route":       {"(route of the console)"},
	"code":        {"(status of HTTP)"},
	"version":     {"(of the program)"},
	"service":     {"kafka", "postgres", "redis"},
	"certificate": {"server", "client"},
	"algorithm":   {delivery.AlgorithmSliding, delivery.AlgorithmFixed, delivery.AlgorithmLog},
	"policy":      {delivery.PolicyOpen, delivery.PolicyLocalShare},

	"pacer_gate_closed_until_timestamp_seconds.cause":   names(delivery.GateCauses),
	"pacer_campaign_held_since_timestamp_seconds.cause": names(hold.Causes[1:]),
	"pacer_destination_answers_total.answer":            {"delivered", "failed", "rejected"},
	"pacer_campaign_backlog.state":                      {"waiting", "retrying", "in_flight"},
	"pacer_actionable_lag.cause":                        {"capacity", "destination"},
}

func names[T any](values []T) (list []string) {
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}
	return list
}

// clusterWide are metrics of the whole installation.
var clusterWide = regexp.MustCompile(`^pacer_(campaign_(backlog|eta|held|late|send).*|campaigns|actionable_lag|quota_(limit|remaining|reset.*|window.*)|gate_.*|destinations|` +
	`catalog_(campaigns|invalid.*)|eventual_.*)$`)

// countedIn are the units of metrics that count something, or are 1 or 0, so that their names do not tell.
var countedIn = map[string]string{
	"units":   `quota_(limit|remaining)|.*_shadow_denied_total|local_granted_total|.*_units`,
	"units/s": `campaign_send_rate`,
	"records": `ingress_lag|timer_backlog|.*records.*|defects_total|lane_repeats_total|open_offsets|dead_letters_total`,
	"jobs": `actionable_lag|campaign_(backlog|late)|jobs_.*|sink_max_in_flight|duplicates_.*|drain_.*|requeue_(held|oversize|queued)|results_waiting|` +
		`dedupe_(claims|unmarked)_total|key_.*`,
	"1 or 0":       `.*_(up|listening|joined|outage|info)|ready`,
	"campaigns":    `campaigns|catalog_(campaigns|invalid_campaigns)|queues|take_items`,
	"destinations": `destinations.*`,
	"partitions":   `.*partitions.*|partition_stalled|offset_resets_total|lanes_.*`,
	"events":       `results_(written|shortened)_total`,
	"requests":     `fetches_total|commits_total|http_requests_total|sink_resent_total`,
	"answers":      `destination_answers_total`,
	"responses":    `smev_responses_.*`,
	"times": `.*failures_total|catalog_loads_total|lane_metadata_trimmed_total|store_losses_total|quota_denied_total|requeue_pin_fallbacks_total|` +
		`requeue_hops`,
	"entries": `dedupe_batch_entries`,
	"slots":   `slots_.*`,
	"spans":   `spans_.*`,
	"streams": `live_streams`,
	"number":  `config_revision|group_generation|lane_read_factor`,
	"shards":  `store_recovering`,
}

// unit is what the values of a metric count.
func unit(metric string) (found []string) {
	name := strings.TrimPrefix(metric, "pacer_")
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return []string{"Unix time, seconds"}
	case strings.HasSuffix(name, "_seconds"):
		return []string{"seconds"}
	case strings.HasSuffix(name, "_bytes"):
		return []string{"bytes"}
	}
	for unit, pattern := range countedIn {
		if regexp.MustCompile("^(" + pattern + ")$").MatchString(name) {
			found = append(found, unit)
		}
	}
	return found
}

// typed is a registry that knows the types of metrics, also of those that have no series yet.
type typed struct {
	*prometheus.Registry
	types map[string]string
}

var described = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: (".*"), constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// Register implements prometheus.Registerer.
func (r *typed) Register(c prometheus.Collector) error {
	kind := ""
	for _, known := range []string{"counter", "gauge", "histogram"} {
		if name := strings.ToLower(reflect.TypeOf(c).String()); strings.Contains(name, known) {
			kind = known
		}
	}
	for desc := range descriptions(c) {
		if name := described.FindStringSubmatch(desc); name != nil && kind != "" {
			r.types[name[1]] = kind
		}
	}
	if err := r.Registry.Register(c); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *typed) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func descriptions(c prometheus.Collector) map[string]bool {
	descs, all := make(chan *prometheus.Desc), map[string]bool{}
	go func() { c.Describe(descs); close(descs) }()
	for d := range descs {
		all[d.String()] = true
	}
	return all
}

// everyPart is a daemon that has everything which has metrics, and is not run. It opens no connection.
func everyPart(t *testing.T) *typed {
	t.Helper()
	cfg := config.Default()
	cfg.Redis.Addrs = []string{"127.0.0.1:1"}
	cfg.Kafka.Brokers, cfg.Kafka.Results, cfg.Dedupe.TTL, cfg.HTTP.Listen = []string{"127.0.0.1:1"}, true, time.Hour, "127.0.0.1:1"
	cfg.Tracing.Endpoint, cfg.Postgres.DSN, cfg.DefaultSink = "http://127.0.0.1:1", "postgres://pacer@127.0.0.1:1/pacer", "receiver"
	receiver, registry := sinkhttp.Default(), smev.Default()
	receiver.URL, registry.URL, registry.ITSystem, registry.Wait = "http://127.0.0.1:1", "http://127.0.0.1:1", "RND001", "accepted"
	cfg.Sinks["receiver"], cfg.Sinks["registry"] = receiver, registry
	s := NewServices(cfg, slog.New(slog.DiscardHandler))
	if err := s.OpenKafka(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &typed{Registry: prometheus.NewRegistry(), types: map[string]string{
		"pacer_campaign_last_success_timestamp_seconds": "gauge", "pacer_campaign_last_error_timestamp_seconds": "gauge", // no job has been sent
		"pacer_key_waiting_jobs":            "gauge",   // no job has waited
		"pacer_duplicates_suppressed_total": "counter", // none was one
	}}
	parts, err := s.parts(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parts.Redis.Close() })
	if _, err := NewDaemon(parts); err != nil {
		t.Fatal(err)
	}
	return r
}

// row is a line of the page.
type row struct {
	kind, help string
	labels     map[string]map[string]bool // with their values
}

// rows reads what is registered, and what a daemon shows before it has begun.
func rows(t *testing.T, r *typed) map[string]*row {
	t.Helper()
	list := map[string]*row{}
	for desc := range descriptions(r) {
		part := described.FindStringSubmatch(desc)
		if part == nil {
			t.Fatalf("cannot read %s", desc)
		}
		if !strings.HasPrefix(part[1], "pacer_") {
			continue
		}
		m := list[part[1]]
		if m == nil {
			m = &row{kind: r.types[part[1]], labels: map[string]map[string]bool{}}
			list[part[1]] = m
		}
		if _, err := fmt.Sscanf(part[2], "%q", &m.help); err != nil {
			t.Fatal(err)
		}
		for label := range strings.SplitSeq(part[3]+","+part[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				m.labels[name] = map[string]bool{}
			}
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		m := list[family.GetName()]
		if m == nil {
			continue
		}
		m.kind = strings.ToLower(family.GetType().String())
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				m.labels[label.GetName()][label.GetValue()] = true
			}
		}
	}
	return list
}

// valuesOf are the values of a label, as the page has them.
func valuesOf(t *testing.T, metric, label string, shown map[string]bool) string {
	t.Helper()
	for _, key := range []string{metric + "." + label, label} {
		if set := labels[key]; set != nil {
			return strings.Join(set, ", ")
		}
	}
	if len(shown) == 0 {
		t.Errorf("%s: a daemon shows no value of the label %s at its start, and this test does not know them", metric, label)
	}
	return strings.Join(slices.Sorted(maps.Keys(shown)), ", ")
}

const metricsHead = `# Metrics

Generated from the program by ` + "`make reference`" + `. Every daemon has these on ` + "`/metrics`" + `, with those of the Go runtime and of the process.
[Metrics and alerts](../operations/metrics-and-alerts.md#what-to-watch) says which to look at, and when.

*Cluster*: the value is that of the whole installation. One daemon has it, or all have the same, so take the ` + "`max`" + `; all others are
the daemon's own. A label's values are those listed; what is in parentheses is yours.

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
`

// TestThePageOfMetricsIsWhatADaemonRegisters compares docs/reference/metrics.md with the metrics of a daemon that has every part. In
// test/, TestContract compares it with those of one that runs.
func TestThePageOfMetricsIsWhatADaemonRegisters(t *testing.T) {
	list := rows(t, everyPart(t))
	page := bytes.NewBufferString(metricsHead)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		m := list[name]
		units := unit(name)
		if len(units) != 1 || m.kind == "" || m.help == "" {
			t.Errorf("%s: unit %q, type %q, help %q", name, units, m.kind, m.help)
			continue
		}
		var with []string
		for _, label := range slices.Sorted(maps.Keys(m.labels)) {
			with = append(with, fmt.Sprintf("`%s`: %s", label, valuesOf(t, name, label, m.labels[label])))
		}
		help := strings.TrimSuffix(m.help, ".") + "."
		if clusterWide.MatchString(name) {
			help = "*Cluster.* " + help
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, units[0], strings.Join(with, "<br>"), help)
	}
	const committed = "../../docs/reference/metrics.md"
	if *update {
		if err := os.WriteFile(committed, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(committed); err != nil || !bytes.Equal(text, page.Bytes()) {
		t.Errorf("docs/reference/metrics.md is not what a daemon registers (%v); run make reference", err)
	}
}

// TestLatenciesHaveNativeHistograms beside their buckets: of all that measure seconds.
func TestLatenciesHaveNativeHistograms(t *testing.T) {
	families, err := everyPart(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, family := range families {
		for _, series := range family.GetMetric() {
			h := series.GetHistogram()
			if h == nil || !strings.HasPrefix(family.GetName(), "pacer_") {
				continue
			}
			seconds := strings.HasSuffix(family.GetName(), "_seconds")
			if (h.Schema != nil) != seconds || len(h.GetBucket()) == 0 {
				t.Errorf("%s: native %v, %d buckets", family.GetName(), h.Schema != nil, len(h.GetBucket()))
			}
			n++
		}
	}
	if n < 8 {
		t.Errorf("%d histograms", n)
	}
}
