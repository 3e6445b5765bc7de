package config

import (
	"strings"
	"testing"
)

// TestSettingsSayWhereTheyComeFrom: each has its value in force, and its origin.
func TestSettingsSayWhereTheyComeFrom(t *testing.T) {
	password := write(t, "password", "hunter22\n")
	path := write(t, "pacer.yaml", `kafka:
  brokers: [a:1, b:2]
  tls: true
  sasl: &same {mechanism: plain, username: u}
redis:
  addrs: [r:1]
  password: "file:`+password+`"
max_weight:
sinks:
  out:
    type: http
    url: "http://me:hunter22@host/deliver?token=hunter22"
    headers: {a: hunter22}
`)
	settings, warnings, err := Settings(Source{path, true, []string{
		"PACER_KAFKA_GROUP=night", "PACER_KAFKA_BROKERS=", "PACER_SINKS_OUT_HEADERS_B=hunter22", "PACER_POSTGRES_DSN=postgres://u:hunter22@h/x",
		"PACER_RETRY_INITIAL=90s", "PACER_KAFKA_SASL_PASSWORD=hunter22", "PACER_NONSENSE=1",
	}})
	if err != nil || len(warnings) != 1 {
		t.Fatal(warnings, err)
	}
	got := map[string]string{}
	for _, s := range settings {
		if _, twice := got[s.Key]; twice {
			t.Errorf("%s is there twice", s.Key)
		}
		got[s.Key] = s.Value + " from " + s.From
		if strings.Contains(s.Value+s.From, "hunter22") {
			t.Errorf("a secret shows: %+v", s)
		}
	}
	for key, want := range map[string]string{
		"kafka.brokers": "a:1,b:2 from " + path + ":2", "kafka.tls.enabled": "true from " + path + ":3", "kafka.sasl.username": "u from " + path + ":4",
		"kafka.group": "night from PACER_KAFKA_GROUP", "kafka.lanes": "256 from default", "max_weight": "1000 from default",
		"redis.password": "*** from " + path + ":7, content of " + password, "redis.key_prefix": "pacer. from kafka.topic_prefix",
		"redis.mode": "single from default", "eventual.roots": "r:1 from redis.addrs", "default_sink": "out from sinks.out",
		"postgres.dsn": "*** from PACER_POSTGRES_DSN", "retry.initial": "90s from PACER_RETRY_INITIAL", "admin_token": " from default",
		"sinks.out.type": "http from " + path + ":11", "sinks.out.url": "http://host/deliver from " + path + ":12",
		"sinks.out.headers": "{a: ***, b: ***} from " + path + ":13, PACER_SINKS_OUT_HEADERS_B", "sinks.out.timeout": "3s from default",
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if len(got) < 60 {
		t.Errorf("%d settings", len(got))
	}
	if _, _, err := Settings(Source{path, true, []string{"PACER_KAFKA_LANES=many"}}); err == nil {
		t.Error("settings that are not valid were printed")
	}
}

// An alias has no line of its own.
func TestSettingsOfAnAlias(t *testing.T) {
	path := write(t, "pacer.yaml", "kafka: {tls: &t {enabled: true, server_name: x}}\nredis: {tls: *t}\n")
	settings, _, err := Settings(Source{path, true, nil})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if s.Key == "redis.tls.server_name" && (s.Value != "x" || s.From != path) {
			t.Errorf("%+v", s)
		}
	}
}

// TestURLsAreNotPrintedWithSecrets: neither what comes from a file nor the query of a URL is.
func TestURLsAreNotPrintedWithSecrets(t *testing.T) {
	hook := write(t, "hook", "https://hooks.example/services/T0/XXXXXXXX\n")
	path := write(t, "pacer.yaml", `kafka: {brokers: [a:1]}
redis: {addrs: [r:1]}
postgres: {dsn: "postgres://u@h/x"}
sinks:
  chat: {type: http, url: "file:`+hook+`"}
  push: {type: fcm, url: "https://gateway.example/fcm?key=0123456789abcdef", bearer: abcdefgh, project: p}
`)
	settings, _, err := Settings(Source{path, true, nil})
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]string{}
	for _, s := range settings {
		printed[s.Key] = s.Value
		if strings.Contains(s.Value, "XXXX") || strings.Contains(s.Value, "0123456789abcdef") {
			t.Errorf("%s: %s", s.Key, s.Value)
		}
	}
	if printed["sinks.chat.url"] != redacted || printed["sinks.push.url"] != "https://gateway.example/fcm" {
		t.Errorf("%q, %q", printed["sinks.chat.url"], printed["sinks.push.url"])
	}
}
