package testservices

import (
	"bufio"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
)

func TestTopicTakesRecordsAtOnce(t *testing.T) {
	t.Parallel()
	brokers := Kafka(t)
	topic := Topic(t, brokers, "harness.topic", 3, kafka.ConfigEntry{ConfigName: "retention.ms", ConfigValue: "-1"})
	if !strings.HasPrefix(topic, "harness.topic-") {
		t.Errorf("the topic is called %q", topic)
	}
	client, closeClient := kafkaClient(brokers)
	defer closeClient()
	for partition := range 3 {
		answer, err := client.Produce(context.Background(), &kafka.ProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("x"))}),
		})
		if err == nil {
			err = answer.Error
		}
		if err != nil {
			t.Errorf("partition %d: %v", partition, err)
		}
	}
}

func TestTopicIsGoneAfterItsTest(t *testing.T) {
	t.Parallel()
	brokers := Kafka(t)
	var topic string
	t.Run("user", func(t *testing.T) { topic = Topic(t, brokers, "harness.gone", 1) })
	client, closeClient := kafkaClient(brokers)
	defer closeClient()
	deadline := time.Now().Add(5 * time.Second)
	for {
		answer, err := client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}})
		if err == nil && (len(answer.Topics) == 0 || answer.Topics[0].Error != nil) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s is still there (error: %v)", topic, err)
		}
	}
}

func TestDatabaseIsEmptyAndGoneAfterItsTest(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("user", func(t *testing.T) {
		dsn = Database(t)
		if other := Database(t); other == dsn {
			t.Errorf("two tests share %s", dsn)
		}
		if err := execute(dsn, `CREATE SCHEMA pacer`); err != nil {
			t.Fatal(err)
		}
	})
	name, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(context.Background(), PostgresDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var left int
	row := conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_database WHERE datname = $1`, strings.TrimPrefix(name.Path, "/"))
	if err := row.Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases left, error %v", left, err)
	}
}

func TestSharedRedisAnswers(t *testing.T) {
	if err := ping(RedisAddr(t)); err != nil {
		t.Error(err)
	}
}

// A missing service must fail the test: a skip would let a run without services pass for one with them.
func TestMissingServiceFails(t *testing.T) {
	if testing.Short() {
		t.Skip("under -short a missing service skips")
	}
	for name, value := range map[string]string{"unset": "", "nobody answers": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(envRedis, value)
			spy := &recorder{TB: t}
			spy.run(func() { RedisAddr(spy) })
			if !strings.Contains(spy.fatal, remedy) || strings.Contains(spy.fatal, "\n") {
				t.Errorf("the complaint is %q", spy.fatal)
			}
		})
	}
}

// TestPortsAreOnesOwn: ports lie below those of outgoing connections and are given out once while their test runs.
func TestPortsAreOnesOwn(t *testing.T) {
	seen := map[int]bool{}
	for range 300 {
		port := FreePort(t)
		if port < firstPort || port >= lastPort || seen[port] {
			t.Errorf("port %d", port)
		}
		seen[port] = true
	}
}

// TestStacksChoosePortsOfTheirOwn: two stacks that start together choose different ports, also before they listen and while a service is
// down.
func TestStacksChoosePortsOfTheirOwn(t *testing.T) {
	base := t.TempDir()
	// Both draw the same numbers. The second one does while the first still waits for its service.
	choose := func(name, then string) *exec.Cmd {
		cmd := exec.Command("bash", "-euc", `. ../../scripts/services/process.sh; mkdir -p "$dir/ports"; RANDOM=7
			free_port >"$dir/ports/kafka"; cat "$dir/ports/kafka"; `+then)
		cmd.Env = append(os.Environ(), "base="+base, "dir="+filepath.Join(base, "stacks", name), "TMPDIR="+base)
		return cmd
	}
	first := choose("one", "read -r _")
	hold, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	one, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	here, elsewhere := filepath.Join(base, "stacks", "one"), filepath.Join(base, "elsewhere")
	if err := os.Rename(here, elsewhere); err != nil { // it is a stack of another checkout
		t.Fatal(err)
	}
	two, err := choose("two", ":").Output()
	if err != nil || string(two) == one {
		t.Errorf("a stack that starts at the same time is given port %q, the first has %q (%v)", two, one, err)
	}
	_ = hold.Close()
	_ = first.Wait()
	if err := os.Rename(elsewhere, here); err != nil {
		t.Fatal(err)
	}
	three, err := choose("three", ":").Output()
	if err != nil || string(three) == one || string(three) == string(two) {
		t.Errorf("a stack is given port %q, of a service that is down (%v)", three, err)
	}
}
