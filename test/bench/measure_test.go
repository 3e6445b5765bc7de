package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/testservices"
)

// TestMeasurementIsPlausibleAndLeavesNothing makes a short measurement on the shared services.
func TestMeasurementIsPlausibleAndLeavesNothing(t *testing.T) {
	brokers, store, db := testservices.Kafka(t), testservices.RedisAddr(t), testservices.PostgresDSN(t)
	o := &Options{Daemon: os.Getenv("PACER_BIN"), Stderr: t.Output(), Environ: append(os.Environ(),
		"PACER_KAFKA_BROKERS="+strings.Join(brokers, ","), "PACER_REDIS_ADDRS="+store, "PACER_POSTGRES_DSN="+db)}
	report, err := Pace(t.Context(), o, &PaceFlags{Rates: []string{"200"}, Daemons: []int{2}, Seconds: 3, SlowSeconds: 3})
	noError(t, err)
	s := report.Streams[0] // its bounds may be missed on a busy machine
	if s.Jobs < 400 || s.CPUSecondsPerMillion <= 0 || s.RSSMiB <= 0 || s.RedisCommandsPerJob <= 0 || s.MaxRolling1s < 130 ||
		s.AchievedOverTarget < 0.6 || s.AchievedOverTarget > 1.03 || s.Lost != 0 || s.Duplicates != 0 {
		t.Errorf("figures %+v", s)
	}
	deadline := time.Now().Add(10 * time.Second) // a broker lists topics for a moment after it has promised to remove them
	for left := leftBehind(t, brokers, store, db); len(left) > 0; left = leftBehind(t, brokers, store, db) {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %q", left)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// leftBehind lists what measurements have left on the services.
func leftBehind(t *testing.T, brokers []string, store, dsn string) (left []string) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	meta, err := (&kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}).Metadata(t.Context(), &kafka.MetadataRequest{})
	noError(t, err)
	for _, topic := range meta.Topics {
		if strings.HasPrefix(topic.Name, "pacer-bench-") {
			left = append(left, "topic "+topic.Name)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: store})
	defer client.Close()
	for keys := client.Scan(t.Context(), 0, "*pacer-bench-*", 1000).Iterator(); keys.Next(t.Context()); {
		left = append(left, "key "+keys.Val())
	}
	db, err := pgx.Connect(t.Context(), dsn)
	noError(t, err)
	defer db.Close(t.Context())
	var databases []string
	if err := db.QueryRow(t.Context(), `SELECT coalesce(array_agg(datname::text), '{}') FROM pg_database WHERE datname LIKE 'pacer\_bench\_%'`).Scan(&databases); err != nil {
		t.Fatal(err)
	}
	return append(left, databases...)
}
