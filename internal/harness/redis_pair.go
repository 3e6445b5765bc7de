package harness

import "testing"

// Pair is a master and its replica.
type Pair struct{ Master, Replica *Redis }

// RedisRing starts n independent masters, for clients that distribute keys over them, each with a replica that has its
// data. Replicas are never promoted.
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
	startAll(t, replicas...) // afterwards: one that finds no master retries only after a second
	awaitLinks(t, replicas...)
	return pairs
}

func newReplica(t testing.TB, port int, master *Redis) *Redis {
	return newRedis(t, port, "--replicaof", loopback, master.port)
}

// awaitLinks returns once every replica has its master's data and receives updates.
func awaitLinks(t testing.TB, replicas ...*Redis) {
	t.Helper()
	for _, r := range replicas {
		if err := await(r.linked); err != nil {
			t.Fatalf("replica: %v", err)
		}
	}
}

// linked returns an error that says why r does not follow a master.
func (r *Redis) linked() error {
	return r.is("replication", "role", "slave", "master_link_status", "up")
}
