package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
)

// execute runs one command line in an empty directory with the given environment.
func execute(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, World{strings.NewReader(""), &out, &errs, environ})
	return code, out.String(), errs.String()
}

// nowhere is where no service answers.
var nowhere = []string{
	"PACER_POSTGRES_DSN=postgres://pacer:hunter2@127.0.0.1:1/pacer", "PACER_KAFKA_BROKERS=127.0.0.1:1", "PACER_REDIS_ADDRS=127.0.0.1:1",
}

func TestBadArgumentsAreOneLineAndCode2(t *testing.T) {
	for _, c := range []struct {
		args string
		says string // a part of the line
	}{
		{"", "which command"},
		{"frobnicate", `no command "frobnicate"`},
		{"campaign", "needs one of list, show"},
		{"campaign frobnicate", `has no command "frobnicate"; it has cancel, create`},
		{"campain list", `no command "campain"; pacer --help lists them`},
		{"campaign lsit", `has no command "lsit"; it has cancel, create`},
		{"help campain", `no command "campain"; pacer --help lists them`},
		{"help campaign shwo", `pacer campaign has no command "shwo"; it has`},
		{"help version x", `pacer version has no command "x"`},
		{"campaign set spring --rtae 5", "unknown flag: --rtae; pacer campaign set --help lists the flags"},
		{"config", "needs one of print"},
		{"campaign show", "exactly one id"},
		{"campaign show a b", "exactly one id"},
		{"campaign list extra", "takes no arguments"},
		{"campaign list --frob", "unknown flag: --frob"},
		{"campaign set spring", "nothing to set"},
		{"campaign create spring --rate fast", "rate: "},
		{"campaign create spring --rate -5", "a rate such as 500"},
		{"campaign create spring --rate 150/x", "period"},
		{"campaign create spring --burst many", "--burst"},
		{"campaign create spring --status sleeping", "status"},
		{"campaign create spring --overflow away", "overflow"},
		{"campaign create spring --job-ttl soon", "job_ttl: "},
		{"campaign create spring --starts-at tomorrow", "starts_at: "},
		{"campaign create spring --ramp fast", "ramp: "},
		{"campaign create spring --ramp start=10,every=1m", "either add or factor"},
		{"campaign create spring --ramp start=10,add=5,every=soon", "every must be a number of seconds"},
		{"campaign create spring --active-hours always", "active_hours: "},
		{"campaign create spring --active-hours 9:00-21:00", "not a time of the day"},
		{"campaign create spring --active-hours mon-fry,09:00-21:00", "active_hours: "},
		{"campaign create spring --time-zone MSK-3", "time_zone"},
		{"quota", "needs one of list, show, set"},
		{"quota set provider", "nothing to set"},
		{"quota set provider --window 300", "limit/span"},
		{"quota set provider --window 300/1m,many/1h", "whole number"},
		{"quota set provider --window 300/1m --window 5/60s", "two windows of 1m"},
		{"quota set provider --window 300/1m:bucket", "sliding, fixed or log"},
		{"quota set provider --window 10001/1m:log", "use sliding"},
		{"quota set provider --window 300/1h:fixed:day@Europe/Moscow", "length of the unit, 1d"},
		{"quota set provider --window 300/1d:fixed:day@Atlantis", "Atlantis"},
		{"quota set provider --window 300/1d:sliding:day", "algorithm fixed only"},
		{"quota set provider --window 68719476737/1d --spend even", "spent evenly"},
		{"quota set provider --on-store-failure panic", "on_store_failure"},
		{"quota set provider --mode loose", "mode"},
		{"quota set provider --spend slowly", "spend"},
		{"quota set provider --rollout 101", "rollout"},
		{"quota set provider --unit calls", "unit"},
		{"quota set cap --key bob --window 5/1d --mode shadow", "--key sets the windows of one value alone"},
		{"quota set cap --key bob --with provider --window 5/1d", "--key sets the windows of one value alone"},
		{"quota set cap --key bob", "--key sets the windows of one value alone"},
		{"quota set cap --key= --window 5/1d", "--key sets the windows of one value alone"},
		{"quota usage", "exactly one id"},
		{"quota usage provider --last week", "--last"},
		{"quota usage provider --step 90s", "whole number of minutes"},
		{"quota usage provider --last 365d --step 1m", "at most 10000 steps"},
		{"publish", "--campaign is required"},
		{"publish --campaign spring", "--file FILE"},
		{"publish --campaign spring --count 5 --file -", "exclude each other"},
		{"publish --campaign spring --count 0", "--count 0"},
		{"publish --campaign ümlaut --count 1", "printable ASCII"},
		{"publish --campaign (unknown) --count 1", "and not (unknown)"},
		{"publish --campaign spring --count 1 --dry-run", "give --file instead of --count"},
		{"publish --campaign spring --file - --format xml", `--format "xml" must be lines or csv`},
		{"publish --campaign spring --file - --map body", `--map: "body" must be FIELD=COLUMN`},
		{"publish --campaign spring --file - --map data=body", "use one of payload, id, destination"},
		{"publish --campaign spring --file .", "is a directory"},
		{"publish --campaign spring --count 1 --rate 0", "--rate 0 would publish nothing"},
		{"publish --campaign spring --file - --rate 5", "--rate goes with --count"},
		{"receiver --failing 101", "--failing 101 is a percentage"},
		{"receiver --latency 1h", "--latency must lie between"},
		{"receiver --listen nowhere", "--listen nowhere"},
		{"console --listen nowhere", `--listen "nowhere" is not host:port`},
		{"dead", "needs one of list, show, replay"},
		{"dead list --reason boredom", "must be one of undecodable"},
		{"dead list --limit -1", "--limit"},
		{"dead list --since yesterday", `--since "yesterday" must be an instant`},
		{"dead list --until 5", `--until "5"`},
		{"dead list --since 1h --until 2h", "--since 1h must lie before --until 2h"},
		{"dead list --job-id=", "--job-id: is empty; leave it out for all"},
		{"dead replay --campaign=", "--campaign: is empty; leave it out for all"},
		{"dead show", "needs the place"},
		{"dead show 3/17 4/2", "got 2 arguments"},
		{"dead show 3/17 --payload --json", "exclude each other"},
		{"dead replay --limit -1", "--limit"},
		{"dead replay --rate fast", "--rate"},
		{"dead replay --rate 0", "--rate 0 would publish nothing"},
		{"dead replay --rate -5", "negative"},
		{"dead replay --to-topic nowhere", "to_topic nowhere is not among kafka.topics"},
		{"dead replay --limit 100001", "--limit 100001 is above 100000"},
		{"dead replay --reason boredom", "must be one of undecodable"},
		{"quota set provider --rollout 50%", `--rollout "50%" must be a whole number; pacer quota set --help`},
		{"quota set provider --rollout 99999999999999999999", `--rollout "99999999999999999999" is out of range`},
		{"quota list --json=perhaps", `--json "perhaps" must be true or false`},
		{"demo --duration 1s", "--duration"},
		{"demo --duration soon", "--duration"},
		{"demo now", "takes no arguments"},
		{"demo --listen nowhere", "is not host:port"},
		{"check now", "takes no arguments"},
		{"migrate sideways", `has no command "sideways"`},
		{"version please", "takes no arguments"},
		{"key show", "needs the id of a quota and a value of its key, got 0 arguments"},
		{"campaign show ''", "an argument is empty; use pacer campaign show ID"},
		{"key show cap ''", "an argument is empty; use pacer key show QUOTA KEY"},
		{"sink open ''", "an argument is empty; use pacer sink open SINK"},
		{"campaign create spring --quota a,", "--quota: one of the values is empty"},
		{"campaign create spring --quota a --quota ''", "--quota: one of the values is empty"},
		{"quota set provider --window ,", "--window: one of the values is empty"},
		{"destination set shop-7 --secret ,", "--secret: one of the values is empty"},
		{"quota usage provider --last -1h", `--last: "-1h" is not a length of time such as 90s, 1h or 7d; pacer quota usage --help`},
		{"top --sort size", "use one of sent, rate"},
		{"top --interval 1ns", "--interval"},
		{"top --limit -1", "--limit"},
		{"simulate now", "takes no arguments"},
		{"simulate --algorithm dice", `no algorithm "dice"; there are leaky-bucket, `},
		{"simulate --algorithm slots,", `no algorithm ""`},
		{"simulate --rate 0", "--rate 0 must be"},
		{"simulate --rate fast", "--rate"},
		{"simulate --jobs -1", "--jobs -1 must be"},
		{"simulate --jobs 1000000", "--jobs 1000000 at 1000/s"},
		{"simulate --idle 4s", "--idle: "},
		{"simulate --idle 4s:1s,2s:1s", "--idle: 2s:1s must come after"},
		{"simulate --out /dev/null/plots", "--out: "},
		{"publish --campaign spring --file nowhere/jobs.jsonl", "nowhere/jobs.jsonl"},
		{"campaign set --all --percent 0", "--percent 0 must be above 0"},
		{"campaign set --all --percent NaN", "--percent NaN must be above 0"},
		{"publish --campaign spring --file - --map key.=to", "--map: key.: a key has a name of 1 to 32 lower-case letters, digits and dashes"},
	} {
		args := strings.Fields(c.args)
		for i, arg := range args {
			if arg == "''" {
				args[i] = ""
			}
		}
		code, stdout, stderr := execute(t, nowhere, args...)
		if code != 2 || stdout != "" {
			t.Errorf("pacer %s: code %d, stdout %q", c.args, code, stdout)
		}
		if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "pacer: ") || !strings.Contains(stderr, c.says) {
			t.Errorf("pacer %s says %q, want one line with %q", c.args, stderr, c.says)
		}
		if strings.Contains(stderr, "hunter2") {
			t.Errorf("pacer %s shows a password: %s", c.args, stderr)
		}
		if parts := strings.Split(stderr, ": "); len(slices.Compact(slices.Clone(parts))) < len(parts) {
			t.Errorf("pacer %s names a field twice: %s", c.args, stderr)
		}
	}
}

func TestMissingConfigurationIsOneLineAndCode2(t *testing.T) {
	for _, args := range []string{
		"campaign list", "quota list", "dead list", "publish --campaign spring --count 1", "migrate up", "run", "check",
		"--config absent.yaml campaign list",
	} {
		code, _, stderr := execute(t, nil, strings.Fields(args)...)
		if code != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("pacer %s: code %d, says %q", args, code, stderr)
		}
	}
}

func TestServicesThatCannotBeReachedAreNamedInOneLineAndCode1(t *testing.T) {
	for line, says := range map[string]string{
		"campaign list": "127.0.0.1:1", "quota show provider": "127.0.0.1:1", "quota usage provider": "127.0.0.1:1",
		"quota set provider --mode shadow": "127.0.0.1:1", "top": "127.0.0.1:1",
		"top --server http://127.0.0.1:1": "--server 127.0.0.1:1: no answer: connect: connection refused",
		"dead list":                       "kafka.brokers: ", "dead show u-42": "kafka.brokers: ", "dead replay --dry-run": "kafka.brokers: ",
		"publish --campaign spring --count 1": "kafka.brokers: ", "publish --campaign spring --count 1 --direct": "kafka.brokers: ",
	} {
		code, stdout, stderr := execute(t, nowhere, strings.Fields(line)...)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "pacer: ") || !strings.Contains(stderr, says) ||
			strings.Contains(stderr, "hunter2") || strings.Contains(stderr, "migrate up") {
			t.Errorf("pacer %s: code %d, %q, says %q", line, code, stdout, stderr)
		}
	}
}

// Ctrl-C is the person's wish, and no fault of a service.
func TestACommandThatIsInterruptedBlamesNoService(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.WriteFile("jobs.jsonl", []byte("{}\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, line := range []string{
		"campaign list", "explain spring", "top", "campaign pause spring", "quota usage provider", "dead list", "publish --campaign spring --count 1",
		"top --server http://127.0.0.1:1", "migrate up", "migrate status", "migrate wipe --yes", "migrate catch-up", "check", "check --ready", "simulate",
		"publish --campaign spring --file jobs.jsonl",
	} {
		var stdout, stderr bytes.Buffer
		code := Run(ctx, strings.Fields(line), World{strings.NewReader(""), &stdout, &stderr, append(nowhere, "PACER_SINKS_OUT_TYPE=discard")})
		says := stderr.String()
		if code != 1 || strings.Count(says, "\n") != 1 || !strings.Contains(says, "interrupted") || strings.Contains(stdout.String(), "FAIL") || strings.Contains(says, "cancel") {
			t.Errorf("pacer %s: code %d, %q, says %q", line, code, stdout.String(), says)
		}
	}
}

func TestHelp(t *testing.T) {
	code, stdout, stderr := execute(t, nil, "--help")
	if code != 0 || stderr != "" {
		t.Errorf("help: code %d, %q", code, stderr)
	}
	for _, command := range []string{"run", "demo", "migrate", "check", "campaign", "quota", "publish", "dead", "version"} {
		contains(t, stdout, "\n  "+command+" ")
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {ErrNotOK, 1}, {errors.New("broken"), 1}, {context.Canceled, 1}, {catalog.ErrNotFound, 1},
		{config.Usagef("--rate: no"), 2}, {fmt.Errorf("read: %w", config.Usagef("no")), 2}, {fmt.Errorf("set: %w", catalog.ErrInvalid), 2},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestPublishNeedsATopic: an empty list in the file is no topic to publish to.
func TestPublishNeedsATopic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pacer.yaml")
	must(t, os.WriteFile(path, []byte("kafka: {brokers: [\"127.0.0.1:1\"], topics: []}\n"), 0o600))
	code, _, says := execute(t, nil, "--config", path, "publish", "--campaign", "spring", "--count", "1")
	if code != 2 || !strings.HasPrefix(says, "pacer: kafka.topics: required; ") || strings.Count(says, "\n") != 1 {
		t.Errorf("code %d, says %q", code, says)
	}
}
