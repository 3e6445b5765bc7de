package testservices

import "testing"

// RedisRing starts n independent servers, for clients that distribute keys over them.
func RedisRing(t testing.TB, n int) []*Redis {
	t.Helper()
	skipIfShort(t, "Redis")
	ring := make([]*Redis, n)
	for i, port := range freePorts(t, n) {
		ring[i] = newRedis(t, port)
	}
	startAll(t, ring...)
	return ring
}

func newReplica(t testing.TB, port int, master *Redis) *Redis {
	return newRedis(t, port, "--replicaof", loopback, master.port)
}

// awaitLink returns once a replica has its master's data and receives updates.
func awaitLink(t testing.TB, replica *Redis) {
	t.Helper()
	if err := await(replica.linked); err != nil {
		t.Fatalf("replica: %v", err)
	}
}

// linked returns an error that says why r does not follow a master.
func (r *Redis) linked() error {
	return r.is("replication", "role", "slave", "master_link_status", "up")
}
