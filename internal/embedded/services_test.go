package embedded

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func TestBrokerKeepsRecordsAndCommitMetadata(t *testing.T) {
	b, err := StartBroker(map[string]int{"jobs": 3, "lanes": 16})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	transport := &kafka.Transport{MetadataTopics: []string{"jobs", "lanes"}}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.ListenAddrs()...), Transport: transport, Timeout: 10 * time.Second}
	meta, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{"jobs", "lanes"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 16} {
		if got := len(meta.Topics[i].Partitions); got != want {
			t.Fatalf("topic %s has %d partitions, want %d", meta.Topics[i].Name, got, want)
		}
	}
	produced, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: "jobs", Partition: 1, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("hello"))}),
	})
	if err != nil || produced.Error != nil {
		t.Fatal(err, produced)
	}
	fetched, err := client.Fetch(t.Context(), &kafka.FetchRequest{
		Topic: "jobs", Partition: 1, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second,
	})
	if err != nil || fetched.Error != nil {
		t.Fatal(err, fetched)
	}
	record, err := fetched.Records.ReadRecord()
	if err != nil {
		t.Fatal(err)
	}
	if value, err := io.ReadAll(record.Value); err != nil || string(value) != "hello" {
		t.Fatalf("read %q, %v", value, err)
	}
	if _, err := fetched.Records.ReadRecord(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last record: %v", err)
	}
}

func TestRedisCountsRoundTripsAndLetsKeysExpire(t *testing.T) {
	r, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pool := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { _ = pool.Close() }()
	pool.AddHook(r)
	client := pool.Conn() // one connection, so that no other hand-shake is counted
	defer func() { _ = client.Close() }()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Mark()
	pipe := client.Pipeline()
	for range 5 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), "n").Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Usage(), (Usage{RoundTrips: 2, Commands: 6}); got != want {
		t.Fatalf("usage %+v, want %+v", got, want)
	}
	if err := client.Set(t.Context(), "k", "v", time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := client.Get(t.Context(), "k").Err(); errors.Is(err, redis.Nil) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the key did not expire")
		}
	}
}
