package broker

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// A login before the session ends keeps the connection, with the secret of the moment; so does one after it.
func TestSessionsAreRenewedBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			const lifetime = 500 * time.Millisecond
			method := map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}[mechanism]
			cluster := kafkatest.Cluster(t, kfake.SeedTopics(1, "jobs"), kfake.EnableSASL(), kfake.Superuser(method, "pacer", "secret"),
				kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "500"}))
			logins := counting(cluster, kmsg.SASLHandshake)
			connections := counting(cluster, kmsg.ApiVersions) // which kafka-go asks for at the begin of each
			var password atomic.Pointer[string]
			set := func(p string) { password.Store(&p) }
			set("secret")
			client := dial(t, Options{Brokers: cluster.ListenAddrs(), Security: func() Security {
				return Security{SASL: SASL{mechanism, "pacer", *password.Load()}}
			}})
			read := func() error {
				_, err := client.Offsets(t.Context(), Latest, Partition{Topic: "jobs"})
				return err
			}
			for begun := time.Now(); time.Since(begun) < 4*lifetime; time.Sleep(lifetime / 20) {
				if err := read(); err != nil {
					t.Fatalf("a request after %v: %v", time.Since(begun), err)
				}
			}
			if logins.Load() < connections.Load()+4 || connections.Load() > 3 {
				t.Errorf("%d logins on %d connections", logins.Load(), connections.Load())
			}
			time.Sleep(2 * lifetime) // it has ended
			if err := read(); err != nil {
				t.Errorf("after the end of the session: %v", err)
			}
			set("wrong")
			time.Sleep(lifetime)
			if err := read(); !errors.Is(err, kafka.SASLAuthenticationFailed) || !NotWritten(err) {
				t.Errorf("without the right password: %v", err)
			}
			set("secret")
			kafkatest.Eventually(t, "the password is right again", func() bool { return read() == nil })
		})
	}
}

func TestAUsernameThatCannotBeSent(t *testing.T) {
	if _, err := New(Options{Security: func() Security { return Security{SASL: SASL{Mechanism: "scram-sha-512", Username: "\x00"}} }}); err == nil {
		t.Error("it was accepted")
	}
}
