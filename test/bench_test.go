package test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/harness"
)

// benchCommand is `pacer bench` on the shared services, which it is told of by its environment alone.
func benchCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	binary := os.Getenv("PACER_BIN")
	if binary == "" {
		t.Fatal("PACER_BIN is not set; run make test, which builds the daemon first")
	}
	cmd := exec.Command(binary, append([]string{"bench"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(environment(), "TMPDIR="+cmd.Dir, "PACER_KAFKA_BROKERS="+strings.Join(harness.Kafka(t), ","),
		"PACER_REDIS_ADDRS="+harness.RedisAddr(t), "PACER_POSTGRES_DSN="+harness.PostgresDSN(t))
	return cmd
}

// benchLeaves lists what measurements have left behind on the services and in the command's folder.
func benchLeaves(t *testing.T, folder string) (left []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(harness.Kafka(t)...), Transport: transport}
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range meta.Topics {
		if strings.HasPrefix(topic.Name, "pacer-bench-") {
			left = append(left, "topic "+topic.Name)
		}
	}
	store := redis.NewClient(&redis.Options{Addr: harness.RedisAddr(t)})
	defer func() { _ = store.Close() }()
	for keys := store.Scan(ctx, 0, "*pacer-bench-*", 1000).Iterator(); keys.Next(ctx); {
		left = append(left, "key "+keys.Val())
	}
	db, err := pgx.Connect(ctx, harness.PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(ctx) }()
	var databases []string
	if err := db.QueryRow(ctx, `SELECT coalesce(array_agg(datname::text), '{}') FROM pg_database WHERE datname LIKE 'pacer\_bench\_%'`).Scan(&databases); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		left = append(left, "file "+f.Name())
	}
	return append(left, databases...)
}

// TestBenchLeavesNothing looks at one measurement after the other: what one leaves behind is not told from another's.
func TestBenchLeavesNothing(t *testing.T) {
	alongside(t, 10*time.Second)
	t.Run("measured", benchMeasures)
	t.Run("interrupted", benchInterrupted)
}

// benchMeasures: the figures are there and plausible, and the services are as they were before.
func benchMeasures(t *testing.T) {
	cmd := benchCommand(t, "--rate", "200", "--daemons", "2", "--seconds", "3", "--json")
	before := benchLeaves(t, cmd.Dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if code := exitCode(err); code != 0 && code != 1 { // 1: a bound that a busy machine does not meet
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var figures struct {
		Jobs           int
		JobsPerSecond  float64 `json:"jobs_per_second"`
		CPU            float64 `json:"cpu_seconds_per_million"`
		RSS            float64 `json:"rss_mib"`
		MaxRolling1s   int     `json:"max_rolling_1s"`
		RedisPerJob    float64 `json:"redis_commands_per_job"`
		Lost           *int
		Duplicates     *int
		AchievedTarget float64 `json:"achieved_over_target"`
	}
	if err := json.Unmarshal(out, &figures); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	t.Logf("%+v", figures)
	if figures.Jobs < 400 || figures.JobsPerSecond < 130 || figures.CPU <= 0 || figures.RSS <= 0 || figures.RedisPerJob <= 0 ||
		figures.MaxRolling1s < 130 || figures.AchievedTarget < 0.6 || figures.AchievedTarget > 1.03 {
		t.Errorf("figures %+v", figures)
	}
	if figures.Lost == nil || *figures.Lost != 0 || figures.Duplicates == nil || *figures.Duplicates != 0 {
		t.Errorf("lost or sent twice: %s", out)
	}
	leavesNothing(t, cmd.Dir, len(before), stderr.String())
}

// benchInterrupted: as after Ctrl-C, in the middle of a measurement.
func benchInterrupted(t *testing.T) {
	cmd := benchCommand(t, "campaigns", "--campaigns", "50", "--seconds", "60")
	before := benchLeaves(t, cmd.Dir)
	progress := &logFile{}
	cmd.Stderr = progress
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); progress.lines("50 campaigns") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatalf("it does not begin: %s", progress)
		}
	}
	time.Sleep(time.Second)
	_ = cmd.Process.Signal(syscall.SIGINT)
	select {
	case err := <-ended:
		if code := exitCode(err); code != 1 || progress.lines("interrupted") == 0 {
			t.Errorf("exit code %d: %s", code, progress)
		}
	case <-time.After(40 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatalf("it does not end: %s", progress)
	}
	leavesNothing(t, cmd.Dir, len(before), progress.String())
}

// leavesNothing waits for the services to be as they were before: a broker lists topics for a moment after it has promised
// to remove them.
func leavesNothing(t *testing.T, folder string, before int, said string) {
	t.Helper()
	left := benchLeaves(t, folder)
	for deadline := time.Now().Add(10 * time.Second); len(left) > before && time.Now().Before(deadline); left = benchLeaves(t, folder) {
		time.Sleep(100 * time.Millisecond)
	}
	if len(left) > before {
		t.Errorf("left behind: %q; it said: %s", left, said)
	}
}
