package testservices

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Environment variables printed by scripts/services.sh env. The daemon reads the same names.
const (
	envKafka    = "PACER_KAFKA_BROKERS"
	envRedis    = "PACER_REDIS_ADDRS"
	envPostgres = "PACER_POSTGRES_DSN"
)

// remedy ends every error about a missing service.
const remedy = "run make test, or scripts/services.sh up and eval \"$(scripts/services.sh env)\""

// Kafka returns the bootstrap addresses of the shared Kafka. Tests share it: every topic and every group has its own
// name (see Topic and Unique), and no test may stop it.
func Kafka(t testing.TB) []string {
	t.Helper()
	brokers := strings.Split(setting(t, "Kafka", envKafka), ",")
	answers(t, "Kafka", brokers[0])
	return brokers
}

// RedisAddr returns the address of the shared Redis. Tests share it: every key has a prefix of its test (see Unique),
// and no test may stop or flush it (see FreshRedis).
func RedisAddr(t testing.TB) string {
	t.Helper()
	addr, _, _ := strings.Cut(setting(t, "Redis", envRedis), ",")
	answers(t, "Redis", addr)
	return addr
}

// PostgresDSN returns the URL of the shared PostgreSQL. Most tests want Database instead.
func PostgresDSN(t testing.TB) string {
	t.Helper()
	return setting(t, "PostgreSQL", envPostgres)
}

// Unique returns prefix with a random suffix: a name that is used only once, also on services that have been up for
// weeks. The suffix consists of letters, digits and a hyphen, so the name may be a topic, a group or a key prefix.
func Unique(prefix string) string { return prefix + "-" + randomHex() }

// Ports are chosen below the range that systems use for outgoing connections (32768 and up on Linux), so that no
// connection takes the port of a service while it is down. Those above lastPort are of scripts/services.sh.
const (
	firstPort = 20000
	lastPort  = 28000
	loopback  = "127.0.0.1"
)

// FreePort returns a loopback TCP port that was just free, and that no outgoing connection will use. No test of any process gets it until
// the test ends: its listener may be down for a while.
func FreePort(t testing.TB) int {
	t.Helper()
	folder := filepath.Join(os.TempDir(), fmt.Sprint("pacer-ports-", os.Getuid()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 100 {
		port := strconv.Itoa(firstPort + mathrand.IntN(lastPort-firstPort))
		var mine *os.File
		if mine, err = os.OpenFile(filepath.Join(folder, port), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			continue
		}
		if err = syscall.Flock(int(mine.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort(loopback, port)); err == nil {
				_ = l.Close()
				t.Cleanup(func() { _ = mine.Close() })
				n, _ := strconv.Atoi(port)
				return n
			}
		}
		_ = mine.Close()
	}
	t.Fatalf("no free port between %d and %d: %v", firstPort, lastPort, err)
	return 0
}

// setting returns the value of an environment variable that names a service.
func setting(t testing.TB, service, name string) string {
	t.Helper()
	skipIfShort(t, service)
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is needed and %s is not set: %s", service, name, remedy)
	}
	return value
}

func skipIfShort(t testing.TB, service string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("%s is needed: not under -short", service)
	}
}

// answers fails the test with one clear line if the environment names a service that is gone; otherwise every test
// would time out in a different way.
func answers(t testing.TB, service, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatalf("%s does not answer at %s: %s", service, addr, remedy)
	}
	_ = conn.Close()
}

func randomHex() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	return hex.EncodeToString(b[:])
}
