package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

var (
	pageBlock = regexp.MustCompile("(?s)\n```(json|yaml|http)\n(.*?)\n```")
	fromFile  = regexp.MustCompile(`file:(/[a-z/_-]+)`)
)

// secretsOfPage are the contents of the files that docs/sinks/http.md names, by the end of their path.
var secretsOfPage = map[string]string{
	"partner":     "s3cret",
	"webhook-new": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "webhook-old": "whsk_" + strings.Repeat("QUFB", 10) + "QUE=",
}

// services are the sections that the page leaves out; docs/sinks/README.md has them.
const services = `kafka: {brokers: ["127.0.0.1:9092"]}
redis: {addrs: ["127.0.0.1:6379"]}
postgres: {dsn: "postgres://pacer@127.0.0.1:5432/pacer"}
`

// TestPageOfHTTP sends the job of docs/sinks/http.md with each configuration there, and compares the request with the one below it.
func TestPageOfHTTP(t *testing.T) {
	text := try(os.ReadFile("../../docs/sinks/http.md"))(t)
	var payload, configuration string
	compared := 0
	for _, block := range pageBlock.FindAllStringSubmatch(string(text), -1) {
		switch block[1] {
		case "json":
			payload = block[2]
		case "yaml":
			configuration = services + block[2]
		case "http":
			compareRequest(t, configuration, payload, block[2])
			compared++
		}
	}
	if compared < 7 {
		t.Errorf("%d requests compared; the test looks at the wrong thing", compared)
	}
}

// usual are the headers of every request with the page's job.
const usual = "idempotency-key: u-42\npacer-attempt: 1\npacer-campaign: spring\nwebhook-id: u-42"

// compareRequest sends the job with the only sink of a configuration. In the request, … stands for any value, and in a line of its own for the usual
// headers.
func compareRequest(t *testing.T, configuration, payload, want string) {
	t.Helper()
	var line, body string
	header := http.Header{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/token" {
			_, _ = w.Write([]byte(`{"access_token":"t0ken-of-the-page","expires_in":3600}`))
			return
		}
		line, body, header = r.Method+" "+r.RequestURI+" HTTP/1.1", string(b), r.Header
	}))
	defer srv.Close()
	name, entry := openPage(t, configuration, srv.URL)
	router := sink.New(sink.Options{Sinks: map[string]sink.Entry{name: entry}, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = router.Run(ctx) })
	defer func() { cancel(); running.Wait(); _ = router.Close() }()
	res := router.Deliver(t.Context(), name, &delivery.Job{
		ID: "u-42", Campaign: "spring", Destination: "shop-7", Weight: 1, Payload: []byte(payload),
		Meta: delivery.Meta{ContentType: "application/json", Headers: []delivery.Header{
			{Key: "tenant", Value: []byte("blue")}, {Key: "target-url", Value: []byte(srv.URL + "/hook")}, {Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_type", Value: []byte("order.made")},
		}},
	})
	if res.Class != delivery.Delivered {
		t.Errorf("%s: %+v", name, res)
		return
	}
	head, wanted, _ := strings.Cut(want, "\n\n")
	lines := strings.Split(strings.Replace(head, "\n…", "\n"+usual, 1), "\n")
	if line != lines[0] || wanted != "…" && body != wanted {
		t.Errorf("%s: %s\n%s\nwant %s\n%s", name, line, body, lines[0], wanted)
	}
	for _, l := range lines[1:] {
		key, value, _ := strings.Cut(l, ": ")
		if !strings.EqualFold(key, l[:len(key)]) || header.Get(key) == "" || value != "…" && header.Get(key) != value {
			t.Errorf("%s: header %s %q, want %s", name, key, header[http.CanonicalHeaderKey(key)], value)
		}
	}
	for key := range header {
		said := slices.ContainsFunc(lines[1:], func(l string) bool { return strings.HasPrefix(strings.ToLower(l), strings.ToLower(key)+": ") })
		if !said && !slices.Contains([]string{"User-Agent", "Content-Length", "Content-Type"}, key) {
			t.Errorf("%s: the page does not show the header %s: %s", name, key, header.Get(key))
		}
	}
}

// openPage opens the only sink of a configuration, with the server in the place of its destination.
func openPage(t *testing.T, configuration, url string) (name string, entry sink.Entry) {
	t.Helper()
	dir := t.TempDir()
	configuration = fromFile.ReplaceAllStringFunc(configuration, func(ref string) string {
		file := filepath.Base(ref)
		if secretsOfPage[file] == "" {
			t.Fatalf("the test knows no content of %s", ref)
		}
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(secretsOfPage[file]), 0o600))
		return "file:" + filepath.Join(dir, file)
	})
	path := filepath.Join(dir, "pacer.yaml")
	must(t, os.WriteFile(path, []byte(configuration), 0o600))
	cfg, warnings, err := config.LoadFor(config.Source{Path: path, Explicit: true}, config.NeedSinks)
	if err != nil || len(warnings) > 0 || len(cfg.Sinks) != 1 {
		t.Fatalf("%d sinks, %q, %v", len(cfg.Sinks), warnings, err)
	}
	for sinkName, c := range cfg.Sinks {
		h := c.(*sinkhttp.Config)
		h.URL = strings.Replace(h.URL, "https://api.example.com", url, 1)
		if port, ok := strings.CutPrefix(url, "http://127.0.0.1:"); ok && (h.Destinations || strings.HasPrefix(h.URL, "{{")) {
			n, _ := strconv.Atoi(port)
			h.Guard.Ports, h.Guard.Allow, h.Guard.AllowHTTP = []int{n}, []string{"127.0.0.0/8"}, true
		}
		endpoints := func(id string) *delivery.Destination {
			return &delivery.Destination{ID: id, URL: url + "/hook", Secrets: []string{"file:shop-7"}, Headers: []delivery.DestinationHeader{{Name: "x-tenant", Value: "blue"}}}
		}
		if h.Destinations {
			h.SecretsDir = dir
			must(t, os.WriteFile(filepath.Join(dir, "shop-7"), []byte(secretsOfPage["webhook-new"]), 0o600))
		}
		h.OAuth2.TokenURL = strings.Replace(h.OAuth2.TokenURL, "https://api.example.com", url, 1)
		if entry, err = sink.Open(c, sink.Host{Version: "1", Logger: slog.New(slog.DiscardHandler), Endpoints: endpoints}); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", sinkName, err))
		}
		name = sinkName
	}
	return name, entry
}
