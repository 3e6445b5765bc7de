package fcm

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a sink for the stand-in, and runs it until the test ends.
func open(t *testing.T, f *sinktest.FCM, validateOnly bool) *httpcall.Sink[parts] {
	t.Helper()
	cfg := Default()
	cfg.URL, cfg.CAFile, cfg.KeyFile, cfg.ValidateOnly = f.URL, f.CAFile, f.KeyFile, validateOnly
	s, err := New(cfg, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job(payload string) *delivery.Job {
	return &delivery.Job{ID: "1", Campaign: "c", Payload: []byte(payload)}
}

// TestMessages: a message comes as the payload says it, bare or wrapped.
func TestMessages(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	s := open(t, f, false)
	for _, payload := range []string{`{"token":"t","notification":{"title":"ü"}}`, `{"message" : {"topic":"news","data":{"n":"1"}}}`, `{"condition":"'a' in topics"}`} {
		sinktest.Deliver(t, s, job(payload), delivery.Delivered)
	}
	sinktest.Deliver(t, open(t, f, true), job(`{"token":"v"}`), delivery.Delivered)
	want := `{"message":{"token":"t","notification":{"title":"ü"}}};{"message":{"topic":"news","data":{"n":"1"}}};` +
		`{"message":{"condition":"'a' in topics"}};{"validate_only":true,"message":{"token":"v"}}`
	if got := string(bytes.Join(f.Bodies(), []byte(";"))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestRefusedToken: another token is fetched for one that is refused, which says nothing of the job.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	s := open(t, f, false)
	deliver := func() delivery.Result { return s.Deliver(t.Context(), job(`{"token":"t"}`), nil) }
	if res := deliver(); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
	f.Revoke()
	if res := deliver(); res.Class != delivery.Misconfigured || strings.Contains(res.Detail, "ya29") {
		t.Errorf("%+v", res)
	}
	sinktest.Eventually(t, "healed", func() bool { return deliver().Class == delivery.Delivered })
	if n := f.Tokens(); n != 2 {
		t.Errorf("%d tokens", n)
	}
}

// TestKeyFiles: the key file is named, and nothing of its content.
func TestKeyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	good, err := os.ReadFile(sinktest.StartFCM(t, nil).KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	const noPEM = `{"client_email":"a","token_uri":"https://a","private_key":"hunter22"}`
	for content, want := range map[string]string{
		strings.Replace(string(good), "https://", "http://", 1): "no https URL",

		"hunter22":                    "is not the JSON",
		`{"client_email":"hunter22"}`: "has no client_email",
		noPEM:                         "a private_key that holds no key in PEM",

		strings.Replace(noPEM, "hunter22", `-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n`, 1): "holds no RSA key",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c := Default()
		c.KeyFile = path
		_, err := New(c, base.Host{})
		if err == nil || !strings.HasPrefix(err.Error(), "service_account_file: "+path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
