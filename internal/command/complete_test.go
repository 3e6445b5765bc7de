package command

import (
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/testservices"
)

// TestWordsAreCompleted: those that flags take, without asking anybody, and nothing where nothing is known.
func TestWordsAreCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"campaign set spring --status": "active paused cancelled completed", "quota set provider --mode": "strict shadow eventual", "top --sort": "sent rate backlog eta dead name",
		"campaign create": "", "destination show": "",
	} {
		code, printed, _ := execute(t, nil, append(append([]string{"__completeNoDesc"}, strings.Fields(line)...), "")...)
		words, _, ok := strings.Cut(printed, ":")
		if got := strings.Join(strings.Fields(words), " "); code != 0 || got != want || !ok {
			t.Errorf("%s: %d, %q, want %q", line, code, printed, want)
		}
	}
	if code, printed, _ := execute(t, nil, "campaign", "show", "--help"); code != 0 || strings.Contains(printed, "completion") {
		t.Errorf("%d %s", code, printed)
	}
	if code, printed, _ := execute(t, nil, "--help"); code != 0 || !strings.Contains(printed, "completion") {
		t.Errorf("the help does not tell of completions: %d %s", code, printed)
	}
	away := []string{"PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer"}
	if code, printed, said := execute(t, away, "__completeNoDesc", "campaign", "show", ""); code != 0 || printed != ":1\n" || strings.Contains(said, "pacer: ") {
		t.Errorf("without a database: %d %q, says %q", code, printed, said)
	}
}

// TestIDsAreCompleted: from the database, and over the API of a console.
func TestIDsAreCompleted(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	for _, line := range []string{"quota set provider --window 300/1m", "campaign create spring --rate 5", "campaign create springtime --rate 5", "campaign create autumn --rate 5"} {
		d.run(line)
	}
	flags := strings.Fields(served(t, d))
	for _, c := range []struct{ line, begun, want string }{
		{"campaign show", "spr", "spring springtime"}, {"explain", "a", "autumn"}, {"campaign pause", "x", ""}, {"campaign pause spring", "", ""},
		{"quota show", "", "provider"}, {"quota set", "pro", "provider"}, {"campaign set spring --quota", "", "provider"},
		{"campaign pause --of-quota", "p", "provider"},
	} {
		words := strings.Fields("__completeNoDesc " + c.line)
		last := len(words)
		if strings.HasPrefix(words[last-1], "--") {
			last--
		}
		over := append(append(append([]string{}, words[1:last]...), flags...), append(words[last:], c.begun)...)
		for _, args := range [][]string{append(words[1:], c.begun), over} {
			printed, _, _ := strings.Cut(d.run("__completeNoDesc", args...), ":")
			if got := strings.Join(strings.Fields(printed), " "); got != c.want {
				t.Errorf("%q: %q, want %q", args, got, c.want)
			}
		}
	}
}
