package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// TestDeadLettersAreReplayedOnce: refused jobs are listed, shown, and replayed only once, at a rate, by commands and over the API.
func TestDeadLettersAreReplayedOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 2})
	s.campaign("spring", 1000)
	s.campaign("autumn", 1000)
	s.receiver.answer, s.receiver.says = func(arrival) (int, time.Duration) { return http.StatusGone, 0 }, "no such \xffuser"
	const each = 40
	payload := "{\"text\":\"\x1b[31m\"}"
	var jobs []job
	for i := range each {
		jobs = append(jobs,
			job{campaign: "spring", id: fmt.Sprintf("spring-%d", i), payload: []byte(payload), headers: []kafka.Header{{Key: "x-mine", Value: []byte{0, 1}}}},
			job{campaign: "autumn", id: fmt.Sprintf("autumn-%d", i)})
	}
	s.publish(jobs)
	const token = "open-sesame-open-sesame"
	d := s.started("one", "PACER_ADMIN_TOKEN="+token)
	s.await(30*time.Second, "the dead letters", func() bool { return len(s.dead()) == 2*each })
	s.receiver.answers(nil)

	var letters []struct {
		JobID    string `json:"job_id"`
		Answer   string `json:"answer"`
		Place    string `json:"place"`
		Attempts int    `json:"attempts"`
	}
	s.unmarshal(s.run("dead", "list", "--campaign", "spring", "--reason", "refused", "--since", "1h", "--json"), &letters)
	if len(letters) != each || letters[0].Attempts != 1 || letters[0].Answer != "no such ?user" {
		t.Fatalf("%d letters, the first %+v", len(letters), letters[0])
	}
	if out := s.run("dead", "list"); !strings.Contains(out, letters[0].Place) || !strings.Contains(out, "all") || !strings.Contains(out, "HTTP 410 Gone from 127.0.0.1") || !strings.Contains(out, ": no such ?user") {
		t.Errorf("dead list printed\n%s", out)
	}
	for _, what := range []string{letters[0].Place, s.prefix + "dead/" + letters[0].Place, letters[0].JobID} {
		out := s.run("dead", "show", what)
		if strings.Contains(out, "\x1b") || !strings.Contains(out, letters[0].JobID) || !strings.Contains(out, `"text":"\x1b[31m"`) ||
			!strings.Contains(out, `x-mine: \x00\x01`) || !strings.Contains(out, "answer      no such ?user") || !strings.Contains(out, "attempts    1") {
			t.Errorf("dead show %s printed\n%s", what, out)
		}
	}
	if out := s.run("dead", "show", letters[0].Place, "--payload"); out != payload {
		t.Errorf("the payload is %q", out)
	}
	for _, what := range []string{"0/999999", "99/0", "nobody-1"} {
		if out, err := s.try("dead", "show", what); exitCode(err) != 1 || strings.Count(out, "\n") != 1 {
			t.Errorf("dead show %s: %v\n%s", what, err, out)
		}
	}

	s.pagesOfLetters(d, 2*each)
	s.replays("--campaign", "spring", "--dry-run")(t, each, each, 0)
	s.replays("--campaign", "spring", "--rate", "1000", "--limit", "10")(t, 10, 10, 0)
	s.run("dead", "replay", "--campaign", "spring")
	s.arrive(20*time.Second, "spring", each)
	s.replays("--campaign", "spring")(t, each, 0, each)
	s.replays("--job-id", "autumn-3", "--to-topic", s.ingress)(t, 1, 1, 0)
	s.replays("--job-id", "autumn-3", "--again")(t, 1, 1, 0)
	s.deadOver(d, token, letters[0].Place, letters[0].JobID)
	s.await(20*time.Second, "one job twice", func() bool { _, twice := s.receiver.accepted("autumn"); return twice == 1 })
	if n, twice := s.receiver.accepted(""); n != each+2 || twice != 1 {
		t.Errorf("%d jobs arrived, %d twice", n, twice)
	}
	d.stop()
}

// deadOver looks at the letters over the API, which says what Kafka does, and replays one.
func (s *stack) deadOver(d *daemon, token, place, id string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "token")
	noError(s.t, os.WriteFile(path, []byte(token), 0o600))
	over := []string{"--server", "http://" + d.listen, "--token", "file:" + path}
	for _, line := range [][]string{
		{"dead", "show", place}, {"dead", "show", place, "--json"}, {"dead", "show", id}, {"dead", "show", place, "--payload"},
		{"dead", "list", "--count"}, {"dead", "list", "--job-id", id, "--reason", "refused", "--since", "1h", "--until", "0s", "--json"}, {"dead", "list", "--campaign", "nobody"},
	} {
		if here, there := s.run(line...), s.run(append(line, over...)...); here != there {
			s.t.Errorf("%v prints\n%s\nand over the server\n%s", line, here, there)
		}
	}
	for says, line := range map[string][]string{
		"there is none of job": {"dead", "show", "nobody-1"}, "no dead letter lies there": {"dead", "show", "0/999999"},
	} {
		if out, err := s.try(append(line, over...)...); err == nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, says) {
			s.t.Errorf("%v over the server: %v\n%s", line, err, out)
		}
	}
	if out, err := s.try("dead", "show", place, "--server", "http://"+d.listen); exitCode(err) != 1 || !strings.Contains(out, "a token of role operator") {
		s.t.Errorf("without a token: %v\n%s", err, out)
	}
	s.replays(append(over, "--job-id", "autumn-5", "--dry-run")...)(s.t, 1, 1, 0)
	s.replays(append(over, "--job-id", "autumn-5", "--rate", "1000", "--limit", "7")...)(s.t, 1, 1, 0)
	s.replays(append(over, "--job-id", "autumn-5")...)(s.t, 1, 0, 1)
	s.arrive(20*time.Second, "autumn", 2)
}

// pagesOfLetters reads the dead letters over the API, a page at a time: each once.
func (s *stack) pagesOfLetters(d *daemon, want int) {
	s.t.Helper()
	seen, counted, after := map[string]bool{}, 0, ""
	for pages := 0; pages == 0 || after != ""; pages++ {
		var page struct {
			Letters []struct{ Place string }
			Counts  []struct{ Letters int }
			Next    string
		}
		d.ask("/dead-letters?limit=30&after="+after, &page)
		if len(page.Letters) > 30 || pages > 5 {
			s.t.Fatalf("page %d: %d letters", pages, len(page.Letters))
		}
		for _, letter := range page.Letters {
			if seen[letter.Place] {
				s.t.Errorf("%s comes twice", letter.Place)
			}
			seen[letter.Place] = true
		}
		for _, c := range page.Counts {
			if pages == 0 {
				counted += c.Letters
			}
		}
		after = page.Next
	}
	if len(seen) != want || counted != want {
		s.t.Errorf("%d letters are on the pages, and %d were counted, of %d", len(seen), counted, want)
	}
}

// unmarshal reads what a command printed.
func (s *stack) unmarshal(out string, v any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(out), v); err != nil {
		s.t.Fatalf("%v in\n%s", err, out)
	}
}

// replays runs `dead replay` and returns a check of what it says.
func (s *stack) replays(flags ...string) func(t *testing.T, matched, replayed, before int) {
	s.t.Helper()
	var said struct{ Matched, Replayed, Before int }
	out := s.run(append([]string{"dead", "replay", "--json"}, flags...)...)
	s.unmarshal(strings.Replace(out, "replayed_before", "before", 1), &said)
	return func(t *testing.T, matched, replayed, before int) {
		t.Helper()
		if said.Matched != matched || said.Replayed != replayed || said.Before != before {
			t.Errorf("dead replay %v says\n%s", flags, out)
		}
	}
}
