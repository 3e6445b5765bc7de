package config

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// sinkBlock is a heading of a page in docs/sinks, or a configuration.
var sinkBlock = regexp.MustCompile("(?m)^#+ (.+)$|(?s)\n```yaml\n(.*?)\n```")

// stage is what a configuration of the page meets here: what stands in for the addresses and files in it, and a job.
type stage struct {
	replace []string
	job     *delivery.Job
}

// stages start the stand-in of a type.
var stages = map[string]func(t *testing.T) stage{
	"apns": func(t *testing.T) stage {
		a := sinktest.StartAPNs(t, nil)
		return stage{
			replace: []string{
				"type: apns\n", "type: apns\n    url: " + a.URL + "\n    ca_file: " + a.CAFile + "\n",
				"/run/secrets/AuthKey_ABC123DEFG.p8", a.KeyFile, "ABC123DEFG", "KEY1", "DEF123GHIJ", "TEAM1",
			},
			job: &delivery.Job{Payload: []byte(`{"aps":{}}`), Meta: delivery.Meta{Headers: []delivery.Header{{Key: "device-token", Value: []byte("ab12")}}}},
		}
	},
	"fcm": func(t *testing.T) stage {
		f := sinktest.StartFCM(t, nil)
		return stage{
			replace: []string{"type: fcm\n", "type: fcm\n    url: " + f.URL + "\n    ca_file: " + f.CAFile + "\n", "/run/secrets/fcm-service-account.json", f.KeyFile},
			job:     &delivery.Job{Payload: []byte(`{"token":"t"}`)},
		}
	},
	"hms": func(t *testing.T) stage {
		h := sinktest.StartHMS(t, nil)
		return stage{
			replace: []string{
				"type: hms\n", "type: hms\n    url: " + h.URL + "\n    ca_file: " + h.CAFile + "\n    token_url: " + h.TokenURL() + "\n",
				"/run/secrets/huawei-account.json", h.KeyFile,
			},
			job: &delivery.Job{Payload: []byte(`{"payload":{"notification":{"title":"x"}},"target":{"token":["t"]}}`)},
		}
	},
	"rustore": func(t *testing.T) stage {
		f := sinktest.StartFCM(t, nil)
		return stage{
			replace: []string{
				"type: rustore\n", "type: rustore\n    url: " + f.URL + "\n    ca_file: " + f.CAFile + "\n", "my-project", f.Project,
				"/run/secrets/rustore", write(t, "bearer", f.Give()+"\n"),
			},
			job: &delivery.Job{Payload: []byte(`{"token":"t"}`)},
		}
	},
	"webpush": func(t *testing.T) stage {
		w := sinktest.StartWebPush(t, nil)
		return stage{
			replace: []string{
				"type: webpush\n", fmt.Sprintf("type: webpush\n    ca_file: %s\n    guard: {ports: [%d], allow: [127.0.0.1]}\n", w.CAFile, w.Port),
				"/run/secrets/vapid", write(t, "vapid", w.Key+"\n"),
			},
			job: &delivery.Job{
				Payload: []byte("hello"), Meta: delivery.Meta{Headers: []delivery.Header{{Key: "subscription", Value: []byte(w.Subscription("ann"))}}},
			},
		}
	},
	"telegram": func(t *testing.T) stage {
		g := sinktest.StartTelegram(t, nil)
		return stage{
			replace: []string{
				"type: telegram\n", "type: telegram\n    url: " + g.URL + "\n    ca_file: " + g.CAFile + "\n", "/run/secrets/telegram-bot", write(t, "token", g.Token+"\n"),
			},
			job: &delivery.Job{Payload: []byte(`{"chat_id":5,"text":"Hello"}`)},
		}
	},
	"smev": func(t *testing.T) stage {
		a := sinktest.StartAdapter(t, sinktest.AdapterOptions{Plain: true})
		return stage{replace: []string{"http://adapter.example:7590/ws", a.URL}, job: &delivery.Job{Payload: []byte(`<a xmlns="urn:x"/>`)}}
	},
	"smev soap": func(t *testing.T) stage {
		a := sinktest.StartAdapter(t, sinktest.AdapterOptions{Files: []string{"out/42/passport.pdf"}})
		return stage{
			replace: []string{"https://adapter.example:7575/ws", a.URL, "/etc/pacer/adapter-ca.pem", a.CAFile},
			job: &delivery.Job{
				Payload: []byte(`<a xmlns="urn:x"/>`),
				Meta:    delivery.Meta{Headers: []delivery.Header{{Key: "attachments", Value: []byte(`[{"filePath":"out/42/passport.pdf"}]`)}}},
			},
		}
	},
	"smev direct": func(t *testing.T) stage {
		s := sinktest.StartSMEV(t, sinktest.SMEVOptions{Plain: true, Signed: true})
		return stage{
			replace: []string{
				"http://smev.example:5000/ws", s.URL, "http://127.0.0.1:8090/sign", sinktest.StartSigner(t, "t0ken"), "/run/secrets/signer", write(t, "token", "t0ken\n"),
			},
			job: &delivery.Job{Payload: []byte(`<a xmlns="urn:x"/>`)},
		}
	},
	"kafka": func(t *testing.T) stage {
		b := sinktest.StartBroker(t, sinktest.BrokerOptions{
			Topic: "orders.paced", Partitions: 3, More: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "pacer", "s3cret")},
		})
		return stage{
			replace: []string{"k1.orders.example:9093", b.Addr, "/etc/pacer/orders-ca.pem", b.CAFile, "/run/secrets/orders", write(t, "secret", "s3cret\n")},
			job:     &delivery.Job{Meta: delivery.Meta{Headers: []delivery.Header{{Key: "customer", Value: []byte("c-1")}}}},
		}
	},
	"steps": func(t *testing.T) stage {
		g := sinktest.StartRegistry(t, 0, nil)
		return stage{
			replace: []string{
				"https://registry.example.com/orders?", g.URL + "/new?", "https://registry.example.com/orders/search?", g.URL + "/find?",
				"https://registry.example.com/orders/{{ .Vars.id }}/state", g.URL + "/state?id={{ .Vars.id }}",
				"https://registry.example.com/orders/{{ .Vars.id }}", g.URL + "/close?id={{ .Vars.id }}",
				"type: steps\n", "type: steps\n    ca_file: " + g.CAFile + "\n", "/run/secrets/registry", write(t, "secret", "t0ken\n"),
			},
			job: &delivery.Job{Payload: []byte(`{"goods":"a"}`)},
		}
	},
	"smtp": func(t *testing.T) stage {
		s := sinktest.StartSMTP(t, sinktest.SMTPOptions{})
		return stage{
			replace: []string{
				"smtp.example.com:587\n", s.Addr + "\n    ca_file: " + s.CAFile + "\n", "/run/secrets/smtp", write(t, "secret", sinktest.MailPassword+"\n"),
			},
			job: &delivery.Job{Payload: []byte(`{"user":{"name":"Ann","email":"ann@example.org"},"order":7}`)},
		}
	},
}

// stageless are the pages without a stage, and why.
var stageless = map[string]string{
	"README": "it is about all types, and TestExamplesLoad reads its configuration",
	"http":   "TestPageOfHTTP compares its requests",
	"log":    "log and discard send nothing",
}

// services are the sections that the pages of docs/sinks leave out; README.md there has them once.
const services = `kafka: {brokers: ["kafka.example:9092"]}
redis: {addrs: ["127.0.0.1:6379"]}
postgres: {dsn: "postgres://pacer@127.0.0.1:5432/pacer"}
`

// TestSinksPages delivers a job with each configuration in the pages of docs/sinks that are not stageless.
func TestSinksPages(t *testing.T) {
	found := map[string]bool{}
	for _, path := range glob(t, "../../docs/sinks/*.md") {
		kind := strings.TrimSuffix(filepath.Base(path), ".md")
		if stageless[kind] != "" {
			continue
		}
		name := kind // of the first configuration; others have the heading before them as well
		for _, block := range sinkBlock.FindAllStringSubmatch(readFile(t, path), -1) {
			text := block[2]
			if text == "" && found[kind] {
				name = kind + " " + strings.ToLower(block[1])
			}
			start, ok := stages[name]
			if text == "" {
				continue
			}
			if !ok {
				t.Errorf("%s: nothing stands in for the configuration %q: add it to stages", path, name)
				continue
			}
			found[name] = true
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				cfg := mustLoad(t, services+strings.NewReplacer(s.replace...).Replace(text))
				deliverOne(t, cfg, s.job)
			})
		}
		if !found[kind] {
			t.Errorf("%s has no configuration, or nothing stands in for it", path)
		}
	}
	for kind := range stages {
		if !found[kind] {
			t.Errorf("no page has a configuration of a sink of type %s", kind)
		}
	}
}

// deliverOne delivers a job to the only sink of a configuration.
func deliverOne(t *testing.T, cfg *Config, job *delivery.Job) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	entries, err := sink.OpenAll(cfg.Sinks, sink.Host{Version: "1", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	r := sink.New(sink.Options{Default: cfg.DefaultSink, Sinks: entries, Logger: log, Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for _, e := range entries {
		if err := e.Sink.(interface{ Check(context.Context) error }).Check(ctx); err != nil {
			t.Errorf("check: %v", err)
		}
	}
	job.ID, job.Campaign = "u-1", "spring"
	name, _ := r.Resolve("")
	res := r.Deliver(ctx, name, job)
	for ; res.Class == delivery.Pending; res = r.Deliver(ctx, name, job) {
		job.State = res.State
	}
	if res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = r.Close()
}
