package console

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/console/auth"
)

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestTheTokenOfThePageIsGood types how docs/console.md makes a token: the list is one, and the token is that of its line.
func TestTheTokenOfThePageIsGood(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(readPage(t), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of commands; this test knows one", len(blocks))
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", blocks[0][1])
	cmd.Dir = t.TempDir()
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	list, err := os.ReadFile(filepath.Join(cmd.Dir, "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(strings.TrimSpace(string(printed)), "token is ")
	sum := sha256.Sum256([]byte(token))
	if err := auth.CheckTokens(string(list)); err != nil || string(list) != "alice operator "+hex.EncodeToString(sum[:])+"\n" {
		t.Errorf("%v: %q, printed %q", err, list, printed)
	}
}

var (
	continued = regexp.MustCompile(` \\\n *`)
	asked     = regexp.MustCompile(`(?m)^    curl (-sN?) (.*)$`)
	revision  = regexp.MustCompile(`If-Match: "\d+"`)
)

// TestTheRequestsOfThePageAreAnswered types each request of docs/console.md, with the token of an admin. The named rows exist at revision
// 7. A conflict is fine: some of them exist already.
func TestTheRequestsOfThePageAreAnswered(t *testing.T) {
	w := guarded()
	w.guard.Anonymous = auth.Viewer
	h, site := serveOf(w)
	server := httptest.NewServer(h)
	defer server.Close()
	defer site.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	var requests []string
	script := "TOKEN=adminadmin\n"
	for _, r := range asked.FindAllStringSubmatch(continued.ReplaceAllString(readPage(t), " "), -1) {
		line := strings.ReplaceAll(r[2], "127.0.0.1:8080", host)
		if r[1] == "-sN" { // it goes on after its first event
			firstEvent(t, "http://"+strings.Trim(line, "'"))
			continue
		}
		line = strings.ReplaceAll(revision.ReplaceAllString(line, `If-Match: "7"`), "/changes/4711/", "/changes/999/")
		script += fmt.Sprintf("curl -s --output body --write-out '%%{http_code} ' %s || true\nhead -c 500 body | tr '\\n' ' '; echo\n", line)
		requests = append(requests, r[0])
	}
	if len(requests) < 9 {
		t.Fatalf("%d requests; the test looks at the wrong thing", len(requests))
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = t.TempDir()
	printed, err := cmd.Output()
	answers := strings.Split(strings.TrimSpace(string(printed)), "\n")
	if err != nil || len(answers) != len(requests) {
		t.Fatalf("%v: %d answers to %d requests:\n%s", err, len(answers), len(requests), printed)
	}
	for i, answer := range answers {
		if !regexp.MustCompile(`^(2\d\d|409|412) `).MatchString(answer) {
			t.Errorf("%s: %s", requests[i], answer)
		}
	}
}

// firstEvent reads as much of a stream.
func firstEvent(t *testing.T, address string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(line, "id: ") {
		t.Errorf("%s: %d %q, %v", address, answer.StatusCode, line, err)
	}
}
