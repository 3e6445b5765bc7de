//go:build alerts

package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// faster is how much shorter all times of the rules are in this test: a Prometheus scrapes every half second instead of 15.
const faster = 30

// inRules are the times in rules.yml: ranges, offsets, and how long something must hold.
var inRules = regexp.MustCompile(`(\[|offset |for: )(\d+[smhd])`)

// TestAlerts makes alerts fire by real causes, with running daemons and services. Redis is stopped, a daemon killed, a credential
// expired, a quota used up, a campaign starved. Jobs become dead letters, and the catalog cannot be read. None fires before.
func TestAlerts(t *testing.T) {
	store := testservices.FreshRedis(t)
	s := newStack(t, stackOptions{partitions: 6, redis: store.Addr})
	statuses := map[string]int{
		"refused": http.StatusBadRequest, "starved": http.StatusInternalServerError, "few": unanswered, "expired": http.StatusUnauthorized,
	}
	s.receiver.answers(func(a arrival) (int, time.Duration) {
		if status, ok := statuses[a.campaign]; ok {
			return status, 0
		}
		return http.StatusOK, 0
	})
	database, dsn := s.catalogNetwork()
	env := []string{dsn, "PACER_SINKS_PARTNER_TYPE=http", "PACER_SINKS_PARTNER_URL=" + s.receiver.url}
	one, two := s.started("one", env...), s.started("two", env...)
	w := newWatcher(t, faster, one.listen, two.listen)

	s.campaign("steady", 50)
	s.publish(further("steady", "steady", 50*400))
	w.quiet(20 * time.Second)

	s.quota("day", "closed", "30/1h")
	for _, c := range []string{"limited", "refused", "starved", "few", "expired"} {
		s.campaign(c, 20)
	}
	s.sql(`UPDATE pacer.campaigns SET sink = 'partner' WHERE id = 'expired'`)
	s.under("day", "limited")
	began := time.Now()
	s.publish(mix(map[string]int{"limited": 200, "refused": 200, "starved": 600, "few": 3, "expired": 200}))
	w.fires("a quota used up", began, `PacerQuotaNearlyExhausted`, "quota", "day")
	w.fires("jobs refused", began, `PacerDeadLetters`, "campaign", "refused")
	w.fires("a credential expired", began, `PacerGateClosed`, "cause", "misconfigured")
	w.fires("a campaign starved", began, `PacerCampaignStarved`, "campaign", "starved")
	w.fires("three jobs unanswered", began, `PacerCampaignStarved`, "campaign", "few")

	w.shows(dashboardExpressions(t))

	began = time.Now()
	database.down()
	w.fires("the catalog unreadable", began, "PacerCatalogUnreadable", "instance", one.listen)
	database.heal()
	w.ends("PacerCatalogUnreadable")

	began = time.Now()
	two.kill()
	w.fires("a daemon killed", began, "PacerDaemonDown", "instance", two.listen)

	began = time.Now()
	store.Kill()
	w.fires("Redis stopped", began, "PacerStoreDown", "instance", one.listen)
	store.Start(t)
	w.ends("PacerStoreDown")
}

// watcher is a Prometheus with the rules of deploy/.
type watcher struct {
	t   *testing.T
	url string
}

// newWatcher starts one that looks at daemons every 15 s; all its times are shorter by a factor.
func newWatcher(t *testing.T, faster int, daemons ...string) *watcher {
	t.Helper()
	dir := t.TempDir()
	text := readFile(t, "../deploy/prometheus/rules.yml")
	rules := inRules.ReplaceAllStringFunc(text, func(match string) string {
		parts := inRules.FindStringSubmatch(match)
		span, err := time.ParseDuration(strings.Replace(parts[2], "d", "h", 1))
		if err != nil || strings.HasSuffix(parts[2], "d") {
			t.Fatalf("a time of the rules, %s: %v", match, err)
		}
		return fmt.Sprintf("%s%dms", parts[1], (span / time.Duration(faster)).Milliseconds())
	})
	every := (15 * time.Second / time.Duration(faster)).Milliseconds()
	config := fmt.Sprintf("global: {scrape_interval: %[1]dms, scrape_timeout: %[1]dms, evaluation_interval: %[1]dms}\nrule_files: [rules.yml]\n"+
		"scrape_configs: [{job_name: pacer, static_configs: [{targets: [%[2]q]}]}]\n", every, strings.Join(daemons, `","`))
	config = strings.ReplaceAll(config, `\"`, `"`)
	for name, content := range map[string]string{"rules.yml": rules, "prometheus.yml": config} {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	program := os.Getenv("PROMETHEUS")
	if program == "" {
		t.Fatal("PROMETHEUS is not set; run make alerts")
	}
	listen := fmt.Sprintf("127.0.0.1:%d", testservices.FreePort(t))
	log, err := os.Create(filepath.Join(dir, "log"))
	noError(t, err)
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	cmd.Stdout, cmd.Stderr = log, log
	noError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("prometheus: %s", text)
		}
	})
	w := &watcher{t: t, url: "http://" + listen}
	w.await("both daemons scraped", 30*time.Second, func() bool { return len(w.query(`up{job="pacer"} == 1`)) == len(daemons) })
	return w
}

// ask returns the labels of the series that an expression has now.
func (w *watcher) ask(expression string) (found []map[string]string, err error) {
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Get(w.url + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var read struct {
		Error string
		Data  struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&read); err != nil {
		return nil, err
	}
	if read.Error != "" {
		return nil, errors.New(read.Error)
	}
	for _, series := range read.Data.Result {
		found = append(found, series.Metric)
	}
	return found, nil
}

// query is ask where Prometheus may not answer yet: then there are none.
func (w *watcher) query(expression string) []map[string]string {
	found, _ := w.ask(expression)
	return found
}

// inPanels are the variables of the dashboard, and what Grafana puts there.
var inPanels = strings.NewReplacer("$__rate_interval", "5s", "$job", ".*", "$campaign", ".*", "$quota", ".*", "$sink", ".*")

// shows evaluates the queries of the dashboard: each has to have an answer, with series, unless it only has those above 0. A scrape may
// fail on a busy machine.
func (w *watcher) shows(expressions []string) {
	w.t.Helper()
	for _, expression := range expressions {
		w.await("series of the dashboard's "+expression, 15*time.Second, func() bool {
			found, err := w.ask(inPanels.Replace(expression))
			return err == nil && (len(found) > 0 || strings.HasSuffix(expression, "> 0"))
		})
	}
	w.t.Logf("%d queries of the dashboard have an answer", len(expressions))
}

func (w *watcher) await(what string, within time.Duration, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(250 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("no %s within %s; firing: %v", what, within, w.query(`ALERTS{alertstate="firing"}`))
		}
	}
}

// quiet waits, and fails if an alert fires meanwhile, other than one of slots: a machine that is busy for some seconds wastes those of
// a whole hour here.
func (w *watcher) quiet(span time.Duration) {
	w.t.Helper()
	time.Sleep(span)
	expression := fmt.Sprintf(`max_over_time(ALERTS{alertstate="firing",alertname!~"PacerSlotsWasted.*"}[%s])`, span)
	if fired := w.query(expression); len(fired) > 0 {
		w.t.Errorf("alerts fire under ordinary load: %v", fired)
	}
}

// fires waits for an alert with this label.
func (w *watcher) fires(cause string, began time.Time, alert, label, value string) {
	w.t.Helper()
	w.await(alert, 3*time.Minute, func() bool {
		return slices.ContainsFunc(w.query(fmt.Sprintf(`ALERTS{alertstate="firing",alertname=%q}`, alert)), func(labels map[string]string) bool {
			return labels[label] == value
		})
	})
	w.t.Logf("%-24s %-26s after %5.1f s", cause, alert, time.Since(began).Seconds())
}

// ends waits until an alert fires no longer.
func (w *watcher) ends(alert string) {
	w.t.Helper()
	w.await("end of "+alert, 3*time.Minute, func() bool {
		return len(w.query(fmt.Sprintf(`ALERTS{alertstate="firing",alertname=%q}`, alert))) == 0
	})
}
