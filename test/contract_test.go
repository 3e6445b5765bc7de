package test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

var update = flag.Bool("update", false, "record what is new in testdata/contract.txt")

const (
	contractFile  = "testdata/contract.txt"
	updateCommand = "go -C test test -run TestContract -update ."
)

// onlyEncrypted are metrics that appear where a service is reached with TLS, which this test's services are not.
var onlyEncrypted = map[string]map[string]bool{
	"pacer_certificate_expiry_timestamp_seconds": {"certificate": true, "service": true},
}

// TestContract compares every name that users can rely on with a recorded list: commands, flags, settings, metrics
// with their labels, headers, tables and columns, notifications and topics. All are taken from the built program and
// from what it does. A name that is removed on purpose is deleted from the list by hand.
func TestContract(t *testing.T) {
	t.Parallel()
	var linked atomic.Bool
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil && bytes.Contains(body, tracedBy) {
			linked.Store(true)
		}
	}))
	t.Cleanup(collector.Close)
	s := newStack(t, stackOptions{
		partitions: 2, settings: deduped + fmt.Sprintf("\ntracing: {endpoint: %q, sample: 0}\n", collector.URL), sinks: fmt.Sprintf("  registry: {type: smev, url: %q, it_system: RND001, wait: accepted}\n"+
			"  customers: {type: http, destinations: true}", sinktest.StartAdapter(t, sinktest.AdapterOptions{Plain: true}).URL),
	})
	s.withResults()
	d := s.everyMetric()
	t.Run("page of metrics", func(t *testing.T) { checkMetricsPage(t, d.families()) })
	families := d.gather()
	maps.Copy(families, onlyEncrypted)
	t.Run("dashboard and rules", func(t *testing.T) { checkDashboard(t, families) })
	found := slices.Concat(s.commands(), s.keys(), s.relations(), s.ownTopics(), s.seen(families))
	slices.Sort(found)
	compareRecorded(t, slices.Compact(found))
	checkExemplars(t, d)
	s.await(20*time.Second, "a span that is linked to the producer's", linked.Load)
}

// compareRecorded compares the names with those of the recorded list, or writes new ones there.
func compareRecorded(t *testing.T, found []string) {
	t.Helper()
	text, err := os.ReadFile(contractFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	recorded := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	for _, entry := range recorded {
		if !slices.Contains(found, entry) {
			t.Errorf("lost: %s", entry)
		}
	}
	var added []string
	for _, entry := range found {
		if !slices.Contains(recorded, entry) {
			added = append(added, entry)
		}
	}
	if len(added) == 0 {
		return
	}
	if !*update {
		t.Errorf("new; record with %s\n+ %s", updateCommand, strings.Join(added, "\n+ "))
		return
	}
	all := slices.Sorted(slices.Values(append(recorded, added...)))
	noError(t, os.WriteFile(contractFile, []byte(strings.Join(all, "\n")+"\n"), 0o600))
}

var helpFlag = regexp.MustCompile(`^  (?:-[a-z], |    )(--[a-z-]+)`)

// commands walks the help of all commands.
func (s *stack) commands() (list []string) {
	s.t.Helper()
	var walk func(path ...string)
	walk = func(path ...string) {
		name := strings.Join(append([]string{"pacer"}, path...), " ")
		list = append(list, "command "+name)
		section := ""
		for line := range strings.Lines(s.help(path)) {
			switch line = strings.TrimRight(line, "\n"); {
			case line == "" || line[0] != ' ':
				section = line
			case section == "Available Commands:":
				if sub := strings.Fields(line)[0]; sub != "help" {
					walk(append(slices.Clone(path), sub)...)
				}
			case section == "Flags:":
				if flag := helpFlag.FindStringSubmatch(line); flag != nil {
					list = append(list, "flag "+name+" "+flag[1])
				}
			}
		}
	}
	walk()
	if len(list) < 50 {
		s.t.Errorf("only %d commands and flags; the help is not read", len(list))
	}
	return list
}

func (s *stack) help(path []string) string {
	s.t.Helper()
	out, err := s.bare(nil, append(slices.Clone(path), "--help")...)
	noError(s.t, err)
	return out
}

// keys asks the program for the settings of all sections by keys that are in none, one level of sections after the other, and for the
// variable of each setting.
func (s *stack) keys() (list []string) {
	s.t.Helper()
	level, variables := [][]string{nil}, [][]string{{"kafka", "tls"}, {"redis", "tls"}} // short for tls.enabled
	for _, kind := range sink.Kinds() {
		level = append(level, []string{"sinks", kind})
	}
	for len(level) > 0 {
		below := s.below(level)
		var next [][]string
		for _, path := range level {
			keys := below[strings.Join(path, ".")]
			for _, key := range keys {
				switch sub := append(slices.Clone(path), key); {
				case key == "type": // it is there already, and decides about the other keys
					list, variables = append(list, "setting "+strings.Join(sub, ".")), append(variables, sub)
				case key != "sinks":
					next = append(next, sub)
				}
			}
			if name := strings.Join(path, "."); len(keys) == 0 {
				if list = append(list, "setting "+name); name != "sinks.steps.steps" { // a list of sections, which has no variable
					variables = append(variables, path)
				}
			}
		}
		level = next
	}
	for part := range slices.Chunk(variables, 40) {
		list = append(list, s.variables(part)...)
	}
	if len(list) < 100 {
		s.t.Errorf("only %d settings and variables; the answers are not read", len(list))
	}
	return list
}

const nonsense = "qqqqqqqqqqqqqqqqqqqqqqqq"

var noSuchKey = regexp.MustCompile(`(?:^pacer: |; )((?:[a-z0-9_]+\.)*)` + nonsense + `: there is no such key; use one of ([^;(]+)`)

// below are the keys of the sections among the paths, by path: a setting has none.
func (s *stack) below(paths [][]string) map[string][]string {
	s.t.Helper()
	keys := map[string][]string{}
	for part := range slices.Chunk(paths, 40) { // the program tells of 50 problems at most
		maps.Copy(keys, s.belowSome(part))
	}
	return keys
}

func (s *stack) belowSome(paths [][]string) map[string][]string {
	s.t.Helper()
	tree := map[string]any{}
	for _, path := range paths {
		at := tree
		for i, key := range path {
			sub, ok := at[key].(map[string]any)
			if !ok {
				sub = map[string]any{}
				if i == 1 && path[0] == "sinks" {
					sub["type"] = key
				}
				at[key] = sub
			}
			at = sub
		}
		at[nonsense] = 1
	}
	text, err := json.Marshal(tree) // which is YAML, too
	noError(s.t, err)
	file := s.dir + "/keys.yaml"
	noError(s.t, os.WriteFile(file, text, 0o600))
	keys := map[string][]string{}
	out, _ := s.bare(nil, "quota", "list", "--config", file) // it fails
	for _, found := range noSuchKey.FindAllStringSubmatch(out, -1) {
		keys[strings.TrimSuffix(found[1], ".")] = strings.Split(strings.TrimSpace(found[2]), ", ")
	}
	return keys
}

// variables are the entries of the settings' variables; the test fails when the program does not know one.
func (s *stack) variables(paths [][]string) (list []string) {
	s.t.Helper()
	file := s.dir + "/variable.yaml"
	sinks := "sinks: {discard: {type: discard}, log: {type: log}, http: {type: http, url: \"http://127.0.0.1:1/\"}}\n"
	noError(s.t, os.WriteFile(file, []byte(sinks+"postgres: {dsn: \"postgres://x@127.0.0.1:1/x\"}"), 0o600))
	const unknown = ": there is no such setting"
	environ := []string{"PACER_" + nonsense + "=0"}
	for _, path := range paths {
		name := "PACER_" + strings.ToUpper(strings.Join(path, "_"))
		if path[0] == "sinks" && path[len(path)-1] == "headers" {
			name += "_X" // each header has its own
		}
		environ, list = append(environ, name+"=0"), append(list, "variable "+name)
	}
	out, _ := s.bare(environ, "quota", "list", "--config", file) // it fails
	if strings.Count(out, unknown) != 1 || !strings.Contains(out, nonsense+unknown) {
		s.t.Errorf("only a variable of nonsense has no setting: %s", out)
	}
	return list
}

// relations are the tables with their columns, the functions for operators, and what tables tell of their changes.
func (s *stack) relations() (list []string) {
	s.t.Helper()
	rows, err := s.db.Query(context.Background(), `
SELECT format('column pacer.%s.%s', table_name, column_name) FROM information_schema.columns WHERE table_schema = 'pacer'
UNION ALL SELECT format('table pacer.%s', table_name) FROM information_schema.tables WHERE table_schema = 'pacer'
UNION ALL SELECT format('function pacer.%s(%s)', proname, replace(oidvectortypes(proargtypes), ', ', ','))
FROM pg_proc WHERE pronamespace = 'pacer'::regnamespace AND obj_description(oid, 'pg_proc') IS NOT NULL
UNION ALL SELECT DISTINCT format('notification pacer.%s %s', relname, substring(prosrc FROM 'pg_notify\(''(\w+)'''))
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
WHERE relnamespace = 'pacer'::regnamespace AND prosrc LIKE '%pg_notify(%'`)
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(list) < 50 {
		s.t.Errorf("%d tables and columns, error %v", len(list), err)
	}
	return list
}

// ownTopics are the topics that pacer made, without their prefix.
func (s *stack) ownTopics() (list []string) {
	s.t.Helper()
	for topic := range s.topics(s.t.Context()) {
		if name, own := strings.CutPrefix(topic, s.prefix); own {
			list = append(list, "topic "+name)
		}
	}
	return list
}

// seen are the names that appear where a daemon works: metrics with their labels, and the headers of requests and of
// records. The sources say which metrics and headers there must be.
func (s *stack) seen(families map[string]map[string]bool) (list []string) {
	s.t.Helper()
	for name, labels := range families {
		list = append(list, fmt.Sprintf("metric %s{%s}", name, strings.Join(slices.Sorted(maps.Keys(labels)), ",")))
	}
	list = append(list, s.receiver.headerNames()...)
	for name := range literals(s.t, `pacer_[a-z_]+`) {
		if metric := strings.TrimRight(name, "_"); families[metric] == nil && !notMetrics[metric] {
			s.t.Errorf("the sources speak of the metric %s, which this test does not see; have the daemon of everyMetric show it", name)
		}
	}
	for name := range literals(s.t, `pacer-[a-z]+(-[a-z]+)*|ce_id`) {
		list = append(list, "header "+name)
	}
	return list
}
