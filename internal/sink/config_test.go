package sink_test

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/log"
)

var host = sink.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)}

func TestKindsHaveUsableDefaults(t *testing.T) {
	for _, kind := range sink.Kinds() {
		cfg, ok := sink.NewConfig(kind)
		if !ok {
			t.Fatal(kind)
		}
		if got := sink.KindOf(cfg); got != kind {
			t.Errorf("the configuration of %s is said to be of %s", kind, got)
		}
		if p, ok := plays[kind]; ok { // has settings without a default
			cfg = p.start(t, always(takes)).config
		} else if !slices.Contains([]string{"log", "discard"}, kind) { // which TestConformance sends by
			t.Errorf("%s is not among the plays", kind)
		}
		keep := setting(cfg, "KeepRejected")
		if keep.IsValid() {
			keep.SetBool(true)
		}
		e, err := sink.Open(cfg, host)
		if err != nil || e.MaxInFlight < 1 || e.Sink == nil || e.KeepRejected != keep.IsValid() {
			t.Errorf("%s: %+v, %v", kind, e, err)
		}
	}
	if _, ok := sink.NewConfig("pigeon"); ok {
		t.Error("a pigeon is a sink")
	}
}

// TestEverySecretIsReadAgain: a secret that comes from a file may change in every kind. The router says whether one has.
func TestEverySecretIsReadAgain(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		cfg := p.start(t, always(takes)).config
		files := cfg.(interface {
			SecretFrom(key string, read func() (string, error))
		})
		reads, more := map[string]int{}, ""
		secretsIn("", reflect.ValueOf(cfg).Elem(), func(key, value string) {
			files.SecretFrom(key, func() (string, error) {
				reads[key]++
				if key == "bearer" || strings.HasPrefix(key, "headers.") {
					value += more
				}
				return value, nil
			})
		})
		e, err := sink.Open(cfg, host)
		if err != nil {
			t.Fatal(err)
		}
		r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e, "b": {Sink: fake{}, MaxInFlight: 1}}})
		t.Cleanup(func() { _ = r.Close() })
		clear(reads)
		if r.Reread() {
			t.Error("what has not changed is said to have changed")
		}
		secretsIn("", reflect.ValueOf(cfg).Elem(), func(key, _ string) {
			if reads[key] == 0 {
				t.Errorf("%s is not read again", key)
			}
		})
		more = "+"
		if _, has := reads["bearer"]; r.Reread() != (has || reads["headers.X-Key"] > 0) {
			t.Error("a change is not told, or there was none")
		}
	})
}

// secretsIn calls found for each secret of a configuration that is not empty.
func secretsIn(prefix string, v reflect.Value, found func(key, value string)) {
	for field, value := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		key, _ := strings.CutPrefix(prefix+"."+name, ".")
		switch {
		case field.Anonymous && value.Kind() == reflect.Struct:
			secretsIn(prefix, value, found)
		case name == "" || name == "-":
		case value.Kind() == reflect.Struct:
			secretsIn(key, value, found)
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			for i := range value.Len() {
				secretsIn(fmt.Sprint(key, ".", i), value.Index(i), found)
			}
		case field.Tag.Get("secret") != "" && value.Kind() == reflect.String && value.Len() > 0:
			found(key, value.String())
		case field.Tag.Get("secret") != "" && value.Kind() == reflect.Map:
			for name, value := range value.Seq2() {
				found(key+"."+name.String(), value.String())
			}
		}
	}
}

func TestOpenAllNamesTheKey(t *testing.T) {
	trusting := http.Default()
	trusting.URL, trusting.CAFile = "https://a", "/nowhere"
	for want, cfg := range map[string]sink.Config{"sinks.x.url: required": http.Default(), "sinks.x.ca_file: open /nowhere": trusting} {
		_, err := sink.OpenAll(map[string]sink.Config{"x": cfg, "z": log.DefaultDiscard()}, host)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
