package catalog

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The part of an address that is wrong is named, and no secret in it repeated.
func TestWrongAddressesOfDestinations(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://hunter22.example/x":      "url: must begin with https:// or http://, such as https://",
		"127.0.0.1:9/x":                 "url: must begin with https:// or http://",
		"HTTPS://a.example/":            "url: must begin with https:// or http://",
		"":                              "url: must begin with https:// or http://",
		"https://u:hunter22@a.example/": "url: must have no user",
		"https://":                      "url: names no host",
		"https:///x":                    "url: names no host",
		"https://a.example/#hunter22":   "url: must have no fragment",
		"https://a.example/hunter 22":   "url: must be printable ASCII without spaces",
		"https://пример.example/":       "url: must be printable ASCII without spaces",
		"https://a.example/" + strings.Repeat("x", 2048): "url: 2066 characters are more than 2048",
		"https://a.example/a@b?c=d@e":                    "",
		"http://[::1]:9?x":                               "",
	} {
		err := (&DestinationChange{URL: &url}).check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hunter")) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// It refuses what the schema refuses: its expression is that of pacer.check_destination.
func TestAddressesAreJudgedAsTheSchemaDoes(t *testing.T) {
	form, printable := regexp.MustCompile(`(?s)^https?://[^/?#@]+([/?][!-~]*)?$`), regexp.MustCompile(`^[!-~]+$`)
	rapid.Check(t, func(t *rapid.T) {
		url := rapid.SampledFrom([]string{"https://", "http://", "", "x"}).Draw(t, "scheme") + rapid.StringOf(rapid.SampledFrom([]rune("ab/?#@: é\n"))).Draw(t, "rest")
		takes := len(url) <= maxURL && form.MatchString(url) && printable.MatchString(url) && !strings.Contains(url, "#")
		if err := (&DestinationChange{URL: &url}).check(); (err == nil) != takes {
			t.Fatalf("%q: %v, and the schema takes it: %t", url, err, takes)
		}
	})
}
