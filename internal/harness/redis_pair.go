package harness

import (
	"net"
	"testing"
)

// Pair is a master and its replica.
type Pair struct{ Master, Replica *Redis }

// RedisReplica starts a Redis that follows master, and returns once it has master's data. Nobody promotes it.
func RedisReplica(t testing.TB, master *Redis) *Redis {
	t.Helper()
	skipIfShort(t, "Redis")
	replica := newReplica(t, FreePort(t), master)
	replica.Start(t)
	awaitLinks(t, replica)
	return replica
}

// RedisRing starts n masters that do not know each other, for clients that spread keys over them by themselves, each
// with a replica that has its data. Nobody promotes a replica.
func RedisRing(t testing.TB, n int) []Pair {
	t.Helper()
	skipIfShort(t, "Redis")
	ports := freePorts(t, 2*n)
	pairs := make([]Pair, n)
	masters, replicas := make([]*Redis, n), make([]*Redis, n)
	for i := range pairs {
		masters[i] = newRedis(t, ports[i])
		replicas[i] = newReplica(t, ports[n+i], masters[i])
		pairs[i] = Pair{Master: masters[i], Replica: replicas[i]}
	}
	startAll(t, masters...)
	startAll(t, replicas...) // afterwards: one that finds no master tries again in a second only
	awaitLinks(t, replicas...)
	return pairs
}

func newReplica(t testing.TB, port int, master *Redis) *Redis {
	host, masterPort, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	return newRedis(t, port, "--replicaof", host, masterPort)
}

// awaitLinks returns once every replica has got its master's data and gets what is new.
func awaitLinks(t testing.TB, replicas ...*Redis) {
	t.Helper()
	for _, r := range replicas {
		if err := await(r.linked); err != nil {
			t.Fatalf("replica: %v", err)
		}
	}
}

// linked says why r does not follow a master.
func (r *Redis) linked() error {
	return r.is("replication", "role", "slave", "master_link_status", "up")
}
