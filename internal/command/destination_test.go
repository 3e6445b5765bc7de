package command

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDestinations: what is created is shown, changed, disabled, enabled and deleted, and no secret is in the database.
func TestDestinations(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.fields(d.run("destination create shop-7 --url https://shop-7.example/hook?token=hunter22 --secret file:new,env:DESTINATION_OLD --max-in-flight 8",
		"--header", "x-tenant=blue", "--header", "authorization=file:shop-7"),
		"state enabled", "url https://shop-7.example/hook", "secrets file:new, env:DESTINATION_OLD", "max in flight 8", "header x-tenant blue",
		"header authorization file:shop-7", "sink -")
	printed := d.run("destination set shop-7 --url https://shop-7.example/new --sink hooks --secret", "", "--header", "")
	d.fields(printed, "url https://shop-7.example/new", "secrets -", "sink hooks", "max in flight 8")
	if strings.Contains(printed, "x-tenant") {
		t.Error(printed)
	}
	d.fields(d.run("destination disable shop-7 --reason", "asked to"), "reason asked to")
	d.shows("destination list", "disabled", "asked to")
	printed = d.run("destination enable shop-7")
	d.fields(printed, "state enabled")
	if strings.Contains(printed, "asked to") {
		t.Error(printed)
	}
	d.shows("destination show shop-7 --json", `"state": "enabled"`, `"max_in_flight": 8`)
	d.exec(`INSERT INTO pacer.destination_progress (destination_id, delivered, dead, rejected, waiting) VALUES ('shop-7', 1234, 5, 60, 78)`)
	d.fields(d.run("destination show shop-7"), "delivered 1234", "failed 65 (5 dead, 0 expired, 60 rejected)", "waiting 78")
	contains(t, strings.Join(strings.Fields(d.run("destination list")), " "), "- hooks 1234 65 78 https://")
	d.run("destination delete shop-7 --yes")
	d.prints("destination list --json", "[]\n")
}

// hooks adds a sink with destinations to the configuration.
func (d *desk) hooks() {
	d.environ = append(d.environ, "PACER_SINKS_HOOKS_TYPE=http", "PACER_SINKS_HOOKS_DESTINATIONS=true", "PACER_SINKS_HOOKS_SECRETS_DIR="+d.t.TempDir())
}

// warned are created destinations that get no jobs, with the warning of each.
var warned = map[string]string{
	"inside --url https://10.0.0.1/x": "url: refused by the sink's guard: 10.0.0.1 is not a public address; " +
		"name its network in guard.allow if it is meant",
	"nofile --url https://shop.example/x --secret file:nofile":            "secrets: there is no file nofile in the sink's secrets_dir",
	"outside --url https://shop.example/x --secret file:../../etc/passwd": "secrets: file ../../etc/passwd is not in the sink's secrets_dir",
	"nosink --url https://shop.example/x --sink shpo":                     "its sink shpo is not configured with destinations: true; use hooks",
	"noheader --url https://shop.example/x --header authorization=env:DESTINATION_NOHEADER": "headers.authorization: " +
		"this daemon has no variable DESTINATION_NOHEADER",
}

// TestDestinationsThatNothingIsSentTo: they are created, with a warning that says why, as campaigns are.
func TestDestinationsThatNothingIsSentTo(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.warns("destination create early --url https://10.0.0.1/x --secret file:missing", "") // without a sink nothing is known of it
	d.hooks()
	for line, why := range warned {
		id, _, _ := strings.Cut(line, " ")
		d.warns("destination create "+line, "nothing is sent to destination "+id+": "+why+"\n")
	}
	d.shows("destination show nosink --json", `"fault": "its sink shpo is not configured`)
	d.warns("destination disable nosink", "")
	d.warns("destination set inside --url https://shop.example/x", "")
}

// TestDestinationTest sends one job to the row, with the secrets of this machine.
func TestDestinationTest(t *testing.T) {
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer srv.Close()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "shop-7"), []byte("opensesame"), 0o600))
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "http://"), ":")
	d := newDesk(t, "127.0.0.1:1")
	d.environ = append(d.environ, "PACER_SINKS_HOOKS_TYPE=http", "PACER_SINKS_HOOKS_DESTINATIONS=true", "PACER_SINKS_HOOKS_SECRETS_DIR="+dir,
		"PACER_SINKS_HOOKS_GUARD_PORTS="+port, "PACER_SINKS_HOOKS_GUARD_ALLOW=127.0.0.0/8", "PACER_SINKS_HOOKS_GUARD_ALLOW_HTTP=true")
	d.run("destination create shop-7 --url "+srv.URL+"/hook", "--header", "authorization=file:shop-7")
	d.environ = append(d.environ, "PACER_KAFKA_BROKERS=127.0.0.1:1") // of which a check says that it cannot be reached
	if _, told, _ := d.types("check"); got != nil || !strings.Contains(told, "ok    sink hooks: its addresses are those of destinations\n") ||
		!strings.Contains(told, "ok    destinations: 1, of which 0 are disabled and 0 failing; connected to 1 of 1 chosen at random\n") {
		t.Errorf("%v\n%s", got, told)
	}
	printed := d.run("sink test hooks --destination shop-7 --payload {}")
	if got.Get("Authorization") != "opensesame" || !strings.Contains(printed, "POST "+srv.URL+"/hook") || strings.Contains(printed, "opensesame") ||
		!strings.Contains(printed, "delivered in") {
		t.Errorf("%v\n%s", got, printed)
	}
}
