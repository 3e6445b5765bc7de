package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices/certs"
)

// TestReader: the first error names its key, and files are bounded.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, err := certs.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue("pacer", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	good := Certificates{write("ca", ca.PEM), write("cert", cert), write("key", key)}
	text, huge := write("text", []byte("hello")), write("huge", make([]byte, maxFile+1))
	for want, c := range map[string]Certificates{
		"":                     good,
		"ca_file: " + text:     {CAFile: text},
		"ca_file: " + huge:     {CAFile: huge},
		"ca_file: open ":       {CAFile: dir + "/nowhere"},
		"cert_file: tls: ":     {CertFile: text, KeyFile: good.KeyFile},
		"key_file: open ":      {CertFile: good.CertFile, KeyFile: dir + "/nowhere"},
		"cert_file: tls: fail": {CertFile: good.CertFile, KeyFile: text},
	} {
		n, _, err := Read(Secrets{}, func(r *Reader) int { return len(r.TLS("", c).Certificates) })
		if want == "" && (err != nil || n != 1) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if p := (Certificates{KeyFile: "x"}).Problems(); len(p) != 1 || good.Problems() != nil {
		t.Error(p)
	}
}
