package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestErrorsShowNoSecret puts a secret into each key, as people do by mistake: in an address with credentials, and in a key for secrets
// in each form of YAML. No error shows it.
func TestErrorsShowNoSecret(t *testing.T) {
	const secret = "hunter22"
	shapes := func(isSecret bool) []string {
		list := []string{
			`"redis://user:hunter22@host:6379"`, `user:hunter22@host`, `"a:1,kafka://user:hunter22@host:1"`, `["hunter22@x:y"]`,
			`{"x://hunter22@host"}`, `"x://a@hunter22@host|b|c"`,
		}
		if isSecret {
			list = append(list, `*hunter22`, `[hunter22]`, `{hunter22: 1}`, `!!int hunter22`, `!!binary hunter22!`, `*hunter22 # "`)
		}
		return list
	}
	// Other errors change the message, so every other configuration lacks a required setting.
	turn := 0
	check := func(path, text string) {
		t.Helper()
		turn++
		environ := []string{"PACER_POSTGRES_DSN=postgres://h/x"}
		if _, _, err := load(t, text, environ[turn%2:]...); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for kind, leaf := range everySetting {
		keys := strings.Split(leaf.path, ".")
		turn++                                                   // so that each shape meets both
		isText := kind == "" || leaf.value.Kind() != reflect.Map // the names of headers are no secrets
		for _, shape := range shapes(leaf.tag != "" && isText) {
			text := strings.Join(keys, ": {") + ": " + shape + strings.Repeat("}", len(keys)-1)
			if kind != "" {
				check(leaf.path, "sinks: {a: {type: "+kind+", "+text+"}}")
				continue
			}
			check(leaf.path, text)
			check(leaf.path, "redis: {mode: ring}\nkafka: {}\n"+strings.Join(keys, ":\n  ")+": "+shape)
		}
	}
	for _, text := range []string{
		secret, "- " + secret, "redis: {password: x}\n? {a: " + secret + "}\n: x", "sinks: {\"a:" + secret + "@b\": {type: log}}",
		"redis: {mode: ring, addrs: [\"redis://u:" + secret + "@a:1|b:1|c:1\"]}", "redis: &" + secret + "\n  password: *" + secret,
	} {
		check(text, text)
		check(text, text)
	}
}

func TestMasked(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "host:6379": "host:6379", "redis://host": "redis://host", "redis://u:p@host:1": "redis://***@host:1",
		"u:p@host": "***@host", "redis://u:p@q@host": "redis://***@host", "@host": "***@host", "a@x://b": "***@x://b",
	} {
		if got := masked(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The chart's values end up in a ConfigMap, so that its schema takes no secret but as file:PATH.
func TestTheChartTakesNoSecrets(t *testing.T) {
	text := readFile(t, "../../deploy/helm/pacer/values.schema.json")
	type node struct {
		Properties           map[string]*node
		AdditionalProperties json.RawMessage // of sinks: what each is
		Items                *node
		Not                  struct{ Not struct{ Pattern string } }
	}
	var values node
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	all := values.Properties["config"]
	var sinks node
	if err := json.Unmarshal(all.Properties["sinks"].AdditionalProperties, &sinks); err != nil {
		t.Fatal(err)
	}
	check := func(of *node, leaf setting) {
		for key := range strings.SplitSeq(leaf.path, ".") {
			if of != nil {
				of = of.Properties[key]
			}
		}
		if of != nil && of.Items != nil {
			of = of.Items
		}
		if of == nil || of.Not.Not.Pattern != "^file:" {
			t.Errorf("%s may be in the values of the chart", leaf.path)
		}
	}
	for kind, leaf := range everySetting {
		// Headers, bodies and texts of sinks are secrets only if they are in a file.
		isText := leaf.value.Kind() != reflect.Map && !slices.Contains([]string{"body", "text", "html"}, leaf.path)
		switch {
		case leaf.tag != secretValue:
		case kind == "" && leaf.path != tokensKey: // hashes
			check(all, leaf)
		case kind != "" && isText:
			check(&sinks, leaf)
		}
	}
}
