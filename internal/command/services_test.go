package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/testservices"
)

// Every mode is reached by what the configuration says and by nothing less.
func TestShardsOfEveryMode(t *testing.T) {
	t.Chdir(t.TempDir())
	single, sentinel, cluster, ring := testservices.FreshRedis(t), testservices.RedisSentinel(t), testservices.RedisCluster(t), testservices.RedisRing(t, 2)
	for _, addr := range append(sentinel.Addrs(), single.Addr) {
		command(t, addr, "ACL", "SETUSER", "keeper", "on", ">s3cret", "allcommands", "allkeys", "allchannels")
		command(t, addr, "ACL", "SETUSER", "default", "off")
	}
	both := ring[0].Addr + "," + ring[1].Addr
	sentinels := []string{"PACER_REDIS_MODE=sentinel", "PACER_REDIS_ADDRS=" + strings.Join(sentinel.Addrs(), ","),
		"PACER_REDIS_MASTER_NAME=" + sentinel.MasterName, "PACER_REDIS_SENTINEL_PASSWORD=s3cret"}
	ringed := []string{"PACER_REDIS_MODE=ring", "PACER_REDIS_ADDRS=" + both}
	clustered := []string{"PACER_REDIS_MODE=cluster", "PACER_REDIS_ADDRS=" + cluster.Nodes[0].Addr}
	alone := []string{"PACER_REDIS_ADDRS=" + single.Addr, "PACER_REDIS_USERNAME=keeper", "PACER_REDIS_DB=3"}
	for name, tt := range map[string]struct {
		of, environ []string
		shards      int // 0: not all of it answers
	}{
		"single":                   {alone, []string{"PACER_REDIS_PASSWORD=s3cret"}, 1},
		"single, another password": {alone, []string{"PACER_REDIS_PASSWORD=other"}, 0},
		"sentinel":                 {sentinels, []string{"PACER_REDIS_SENTINEL_USERNAME=keeper", "PACER_REDIS_SHARDS=2"}, 2},
		"sentinel, another user":   {sentinels, []string{"PACER_REDIS_SENTINEL_USERNAME=other"}, 0},
		"cluster":                  {clustered, nil, 16},
		"cluster of 3 shards":      {clustered, []string{"PACER_REDIS_SHARDS=3"}, 3},
		"ring":                     {ringed, nil, 2},
		"ring, a master missing":   {ringed, []string{"PACER_REDIS_ADDRS=" + both + ",127.0.0.1:1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := try((&cli{World: World{Environ: slices.Concat(tt.of, tt.environ), Stderr: io.Discard}}).services(config.NeedRedis))(t)
			shards := try(s.Shards())(t)
			defer func() { _ = shards.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := errors.Join(shards.Up(ctx, "pacer.")...)
			if (err == nil) != (tt.shards > 0) || err == nil && shards.Count() != tt.shards {
				t.Errorf("%d shards, want %d; error %v", shards.Count(), tt.shards, err)
			}
		})
	}
}

func command(t *testing.T, addr string, args ...any) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v at %s: %v", args, addr, err)
	}
}

// go-redis' own lines would have another format than the daemon's.
func TestTheRedisClientSpeaksThroughTheLog(t *testing.T) {
	t.Chdir(t.TempDir())
	for level, want := range map[string]bool{"info": false, "debug": true} {
		var said bytes.Buffer
		environ := []string{"PACER_REDIS_ADDRS=127.0.0.1:1", "PACER_LOG_LEVEL=" + level, "PACER_LOG_FORMAT=json"}
		s := try((&cli{World: World{Environ: environ, Stderr: &said}}).services(config.NeedRedis))(t)
		shards := try(s.Shards())(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := shards.Up(ctx, "pacer.")[0]; err == nil {
			t.Error("something answers on port 1")
		}
		cancel()
		if err := shards.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(said.String(), "failed to dial"); got != want {
			t.Errorf("at level %s the log says %q", level, said.String())
		}
		for line := range strings.Lines(said.String()) {
			if !strings.HasPrefix(line, "{") {
				t.Errorf("not a line of the log: %q", line)
			}
		}
	}
}

func TestAMisspelledVariableIsNamedWhereItsValueIsMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	var said bytes.Buffer
	_, err := (&cli{World: World{Environ: []string{"PACER_KAFKA_BROKRES=127.0.0.1:9092"}, Stderr: &said}}).services(config.NeedKafka)
	if ExitCode(err) != 2 || !strings.Contains(err.Error(), "kafka.brokers: required") ||
		!strings.Contains(err.Error(), "PACER_KAFKA_BROKRES: there is no such setting") || said.Len() > 0 {
		t.Fatalf("error %v, said %q", err, said.String())
	}
}

// A machine that has the configuration of the daemons, and not their secrets, can do what needs none of them.
func TestCommandsNeedOnlyTheSecretsThatTheyUse(t *testing.T) {
	environ := []string{
		"PACER_KAFKA_BROKERS=127.0.0.1:1", "PACER_REDIS_ADDRS=127.0.0.1:1", "PACER_POSTGRES_DSN=postgres://pacer@127.0.0.1:1/pacer",
		"PACER_REDIS_PASSWORD=file:/nowhere/redis", "PACER_ADMIN_TOKEN=file:/nowhere/token", "PACER_KAFKA_TLS=true", "PACER_KAFKA_TLS_CA_FILE=/nowhere/ca",
		"PACER_SINKS_OUT_TYPE=log", "PACER_SINKS_BOT_TYPE=telegram", "PACER_SINKS_HOOKS_TYPE=http", "PACER_SINKS_HOOKS_URL=http://127.0.0.1:1/",
		"PACER_SINKS_HOOKS_BEARER=file:/nowhere/bearer",
	}
	secrets := []string{"redis.password", "admin_token", "sinks.bot.token", "sinks.hooks.bearer"}
	for line, missing := range map[string][]string{
		"campaign list": nil, "campaign pause spring": nil, "quota list": nil, "quota show provider": nil, "explain spring": nil, "destination list": nil,
		"migrate status": nil, "top --plain --count 1": nil, "sink test out": nil, "sink test hooks": {"sinks.hooks.bearer"},
		"sink list": {"redis.password"}, "console": {"redis.password", "admin_token"}, "run": secrets, "check": secrets, "config print": secrets,
	} {
		code, _, said := execute(t, environ, strings.Fields(line)...)
		for _, secret := range secrets {
			if strings.Contains(said, secret) != slices.Contains(missing, secret) {
				t.Errorf("%s: code %d, says %q, which is to name %v", line, code, said, missing)
			}
		}
		if len(missing) > 0 && code != 2 {
			t.Errorf("%s: code %d", line, code)
		}
	}
}
