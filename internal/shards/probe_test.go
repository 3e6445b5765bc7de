package shards

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/certs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes shards that are closed after the test.
func connect(t *testing.T, o Options) *Set {
	t.Helper()
	set, err := Connect(o)
	must(t, err)
	t.Cleanup(func() { _ = set.Close() })
	return set
}

func TestClocksAreComparedAsFarAsItIsCertain(t *testing.T) {
	at := time.Unix(1000, 0)
	for there, want := range map[int]int{0: 0, 1: 0, 2: 0, 5: 3, -4: -4} {
		if got := ahead(at.Add(time.Duration(there)*time.Second), at, at.Add(2*time.Second)); got != time.Duration(want)*time.Second {
			t.Errorf("%d: %s", there, got)
		}
	}
	if name := addressOf(redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m"})); name != "the master of the sentinels" {
		t.Error(name)
	}
	if furthest(time.Second, -2*time.Second) != -2*time.Second || furthest(-2*time.Second, time.Second) != -2*time.Second {
		t.Error("the nearer one was taken")
	}
}

func TestErrorsNameTheirSetting(t *testing.T) {
	if err := closedAtOnce(io.EOF, false); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "set redis.tls") {
		t.Error(err)
	}
	if err := closedAtOnce(io.EOF, true); err != io.EOF { //nolint:errorlint // the same value
		t.Error(err)
	}
}

// TestProbe: a user without one of the rights, and a server that evicts.
func TestProbe(t *testing.T) {
	t.Parallel()
	server := testservices.FreshRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = admin.Close() })
	do := func(args ...any) {
		t.Helper()
		must(t, admin.Do(context.Background(), args...).Err())
	}
	probed := func(user string) Condition {
		t.Helper()
		c, err := connect(t, Options{Addrs: []string{server.Addr}, Username: user, Password: "secret"}).Probe(t.Context(), "pacer.")
		must(t, err)
		return c
	}
	for _, missing := range []string{"", "hset", "mget", "hlen", "info", "evalsha", "time"} {
		rules := []any{"ACL", "SETUSER", "u" + missing, "on", ">secret", "~{pacer.*", "+@all"}
		if missing != "" {
			rules = append(rules, "-"+missing)
		}
		do(rules...)
		got := probed("u" + missing).Refused
		if missing == "" && len(got) > 0 || missing != "" && !strings.Contains(strings.Join(got, "; "), missing) {
			t.Errorf("without %q: %q", missing, got)
		}
	}
	do("ACL", "SETUSER", "elsewhere", "on", ">secret", "~{other.*", "+@all")
	if got := probed("elsewhere").Refused; len(got) == 0 {
		t.Error("a user of other keys is not told apart")
	}
	for user, want := range map[string]string{"uhset": "; the user of redis.username lacks a right", "u": ""} {
		set := connect(t, Options{Addrs: []string{server.Addr}, Username: user, Password: "secret"})
		const source = "return redis.call('hset', KEYS[1], 'f', '1')"
		piped := (&Script{text: func() (string, string) { return source, "none" }}).Run(t.Context(), set.Master(0), Run{Keys: []string{"{pacer.0}"}})
		for _, err := range []error{piped.Err(), set.Master(0).Eval(t.Context(), source, []string{"{pacer.0}"}).Err()} {
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
				t.Errorf("%s: %v", user, err)
			}
		}
	}
	do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if c := probed("u"); len(c.Unbounded) != 1 || len(c.Evicts) != 0 {
		t.Errorf("%+v", c)
	}
	do("CONFIG", "SET", "maxmemory", "1gb")
	if c := probed("u"); len(c.Evicts) != 1 || !strings.Contains(c.Evicts[0], "allkeys-lru") || c.Ahead != 0 {
		t.Errorf("%+v", c)
	}
}

// TestEveryCommandOfTheScriptsIsDocumented: the page on operation lists what a daemon's user needs, and pacer check tries all of it.
func TestEveryCommandOfTheScriptsIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/deploy.md")
	must(t, err)
	_, rules, _ := strings.Cut(string(page), "ACL SETUSER pacer on")
	rules, _, _ = strings.Cut(rules, "\n\n")
	probed, err := os.ReadFile("lua/probe.lua")
	must(t, err)
	files, _ := filepath.Glob("../*/lua/*.lua")
	deeper, _ := filepath.Glob("../*/*/lua/*.lua")
	called := map[string]bool{}
	for _, file := range append(files, deeper...) {
		script, err := os.ReadFile(file)
		must(t, err)
		for _, found := range regexp.MustCompile(`call\(["'](\w+)["']`).FindAllStringSubmatch(string(script), -1) {
			called[strings.ToLower(found[1])] = true
		}
	}
	if len(called) < 15 {
		t.Fatalf("only %v", called)
	}
	for command := range called {
		if !slices.Contains(strings.Fields(rules), "+"+command) {
			t.Errorf("%s is not in docs/operations/deploy.md", command)
		}
		if command != "info" && !strings.Contains(string(probed), "try('"+command+"'") { // that is asked for besides
			t.Errorf("pacer check does not try %s", command)
		}
	}
}

// TestTheClockOfAReplicaIsCompared: it becomes that of all sending with a fail-over. Replicas encrypt as their primary does. The replica here is one
// only as far as its primary knows.
func TestTheClockOfAReplicaIsCompared(t *testing.T) {
	t.Parallel()
	authority, err := certs.New()
	must(t, err)
	public, key, err := authority.Issue("redis", time.Now().Add(time.Hour))
	must(t, err)
	pair, err := tls.X509KeyPair(public, key)
	must(t, err)
	mine, trusted := &tls.Config{Certificates: []tls.Certificate{pair}}, x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority.PEM)
	server := testservices.FreshRedis(t)
	replica, err := miniredis.RunTLS(mine)
	must(t, err)
	t.Cleanup(replica.Close)
	front, err := tls.Listen("tcp", "127.0.0.1:0", mine)
	must(t, err)
	t.Cleanup(func() { _ = front.Close() })
	go func() {
		for {
			client, err := front.Accept()
			if err != nil {
				return
			}
			go pass(client, server.Addr)
		}
	}()
	access := Access{TLS: &tls.Config{RootCAs: trusted}}
	isCompared(t, server, replica, Options{Addrs: []string{front.Addr().String()}, Renew: func() Access { return access }})
}

// pass connects a client with an address until one of them has had enough.
func pass(client net.Conn, addr string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server) }()
	_, _ = io.Copy(server, client)
}

// isCompared waits until the clock of a replica of the server, an hour ahead, is found.
func isCompared(t *testing.T, server *testservices.Redis, replica *miniredis.Miniredis, o Options) {
	t.Helper()
	replica.SetTime(time.Now().Add(time.Hour))
	conn, err := net.Dial("tcp", server.Addr)
	must(t, err)
	defer func() { _ = conn.Close() }()
	for _, command := range []string{"REPLCONF listening-port " + replica.Port(), "PSYNC ? -1"} {
		if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // for the answer
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	set := connect(t, o)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := set.Probe(t.Context(), "pacer.")
		must(t, err)
		if c.Ahead > 59*time.Minute {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the clock of the replica is an hour ahead, and %s is found", c.Ahead)
		}
	}
}

// TestAnotherModeIsNamed: a server that is not what redis.mode says is refused with the setting to correct.
func TestAnotherModeIsNamed(t *testing.T) {
	t.Parallel()
	plain, cluster, sentinels := testservices.FreshRedis(t).Addr, testservices.RedisCluster(t).Addrs(), testservices.RedisSentinel(t).Addrs()
	for want, o := range map[string]Options{
		"; it is a node of a cluster: set redis.mode to cluster": {Addrs: cluster[:1]},
		"; it is no cluster: set redis.mode":                     {Mode: ModeCluster, Addrs: []string{plain}},
		"; is it a sentinel?":                                    {Addrs: sentinels[:1]},
		"; correct redis.addrs, which are those of sentinels":    {Mode: ModeSentinel, MasterName: "m", Addrs: []string{plain}},
		"or redis.master_name":                                   {Mode: ModeSentinel, MasterName: "m", Addrs: sentinels},
		"; correct redis.db":                                     {Addrs: []string{plain}, DB: 77},
	} {
		if err := errors.Join(connect(t, o).Up(t.Context(), "pacer.")...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// far is a hook that makes a server some milliseconds away.
type far time.Duration

func (f far) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f far) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(f))
		return next(ctx, cmd)
	}
}

func (f far) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(f))
		return next(ctx, cmds)
	}
}

// TestManyShardsAreUp: a daemon asks each second, and does not start before the answer.
func TestManyShardsAreUp(t *testing.T) {
	t.Parallel()
	set := connect(t, Options{Addrs: []string{miniredis.RunT(t).Addr()}, Shards: maxShards})
	set.Master(0).AddHook(far(2 * time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if errs := set.Up(ctx, "pacer."); len(errs) != 1 || errs[0] != nil {
		t.Errorf("%d shards, 2 ms away: %.200v", maxShards, errs)
	}
}
