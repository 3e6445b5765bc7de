package command

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/shards"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/testservices"
)

// told returns what the checks print.
func told(check func(*checks)) (text string, ok bool) {
	var out bytes.Buffer
	c := (&cli{World: World{Stdout: &out}}).newChecks(context.Background())
	check(c)
	return out.String(), c.verdict() == nil
}

func TestCheckOfCertificates(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	seen := []app.Expiring{
		{Service: "redis", Certificate: "client", At: now.Add(-time.Hour)},
		{Service: "postgres", Certificate: "server", At: now.AddDate(0, 0, 9)},
		{Service: "kafka", Certificate: "server", At: now.AddDate(0, 0, 31)},
	}
	text, ok := told(func(c *checks) { c.certificates(seen, now) })
	want := "FAIL  redis.tls: pacer's certificate has expired on 2026-12-01; renew it\n" +
		"note  postgres.dsn: the server's certificate expires on 2026-12-10; renew it\n"
	if text != want || ok {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestCheckOfClocks(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		999 * time.Millisecond: "", -999 * time.Millisecond: "",
		3210 * time.Millisecond: "note  redis: its clock is 3.2s ahead of that of this machine; let NTP slew both\n",
		-time.Minute:            "note  redis: its clock is 1m0s behind that of this machine; let NTP slew both\n",
	} {
		if text, ok := told(func(c *checks) { c.clock("redis", ahead) }); text != want || !ok {
			t.Errorf("%s: %q", ahead, text)
		}
	}
}

func TestOnThisMachine(t *testing.T) {
	for servers, want := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "::1": true, "/run/postgresql": true, "127.0.0.1:1 127.9.9.9:2": true,
		"127.0.0.1:1 10.0.0.1:1": false, "redis:6379": false, "db.example": false, "[2001:db8::1]:1": false, "localhost.example:1": false,
	} {
		if onThisMachine(strings.Fields(servers)...) != want {
			t.Errorf("%s: %t", servers, !want)
		}
	}
}

func TestCheckOfTheCatalog(t *testing.T) {
	broken := errors.New("broken")
	for want, found := range map[string]catalog.Condition{
		"version 3 of 4; run pacer migrate up":                                       {Schema: 3, Newest: 4, Missing: "x"},
		"the user of postgres.dsn lacks rights of a daemon: GRANT SELECT ON pacer.x": {Schema: 5, Newest: 4, Missing: "GRANT SELECT ON pacer.x"},
	} {
		if err := postgresFault(found, nil); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := postgresFault(catalog.Condition{Schema: 4, Newest: 4}, nil); err != nil {
		t.Error(err)
	}
	if err := postgresFault(catalog.Condition{}, broken); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestCheckOfTheRoots: a server of eventual quotas that does not answer is named, beside a Redis that does.
func TestCheckOfTheRoots(t *testing.T) {
	up := testservices.FreshRedis(t).Addr
	cfg := config.Default()
	cfg.Redis.Addrs, cfg.Redis.Mode, cfg.Eventual.Roots = []string{up}, shards.ModeSingle, []string{up, "127.0.0.1:1"}
	text, ok := told(func(c *checks) { c.redis(t.Context(), app.NewServices(cfg, slog.New(slog.DiscardHandler))) })
	if ok || !strings.Contains(text, "FAIL  eventual.roots: 127.0.0.1:1: ") || strings.Contains(text, "eventual.roots: "+up) {
		t.Errorf("%s", text)
	}
}

// TestDefaultTimeoutEndsWithinADrain: a default draws no note.
func TestDefaultTimeoutEndsWithinADrain(t *testing.T) {
	if d := sinkhttp.Default().Timeout; d > drainTimeout {
		t.Errorf("the default timeout of a sink is %s, and a drain lasts %s", d, drainTimeout)
	}
}
