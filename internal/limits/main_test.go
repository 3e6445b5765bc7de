package limits

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestMain has more tests run side by side than there are cores: those that are parallel wait for real time or for Redis.
func TestMain(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < sideBySide {
		if err := flag.Set("test.parallel", strconv.Itoa(sideBySide)); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	shared.end()
	os.Exit(code)
}

const sideBySide = 6

// shared stands in for a test where what is started serves all of them, and ends after the last.
var shared suite

// suite is what the harness needs of a test.
type suite struct {
	testing.TB // nil: nothing else is called
	mu         sync.Mutex
	cleanups   []func() // under mu
}

func (b *suite) Helper() {}

func (b *suite) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (b *suite) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (b *suite) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

func (b *suite) TempDir() string {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (b *suite) end() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
}

// connect makes shards that live as long as the suite.
func (b *suite) connect(o shards.Options) *shards.Set {
	set, err := shards.Connect(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = set.Close() }) // nothing is written on closing
	return set
}

type topology struct {
	name  string
	start func() *shards.Set
}

// cluster is the one that all tests share.
var cluster = sync.OnceValue(func() *testservices.Cluster { return testservices.RedisCluster(&shared) })

// topologies are all ways to spread an engine over servers.
var topologies = []topology{
	{"redis", sync.OnceValue(func() *shards.Set {
		return shared.connect(shards.Options{Mode: shards.ModeSingle, Addrs: []string{testservices.RedisAddr(&shared)}})
	})},
	{"cluster", sync.OnceValue(func() *shards.Set {
		return shared.connect(shards.Options{Mode: shards.ModeCluster, Addrs: cluster().Addrs(), Shards: 4})
	})},
	{"sentinel", sync.OnceValue(func() *shards.Set {
		s := testservices.RedisSentinel(&shared)
		return shared.connect(shards.Options{Mode: shards.ModeSentinel, Addrs: s.Addrs(), MasterName: s.MasterName})
	})},
	{"ring", sync.OnceValue(func() *shards.Set {
		var addrs []string
		for _, r := range testservices.RedisRing(&shared, 2) {
			addrs = append(addrs, r.Addr)
		}
		return shared.connect(shards.Options{Mode: shards.ModeRing, Addrs: addrs})
	})},
}
