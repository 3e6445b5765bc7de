package test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/testservices"
)

// randomCases draw their faults.
var randomCases = []chaosCase{
	{"random-faults", false, randomFaults, telling{}},
}

// randomFaults does at random, one after the other, for five minutes or CHAOS_LASTS, and to thirty campaigns on three daemons: kill a
// daemon, suspend one for up to 14 s; kill the broker, throttle it, cut its connections, swallow its answers; kill the quota store, which
// loses its data, or empty it; take the catalog away. A third of the campaigns have a quota that binds. Sessions with the broker last 5 s.
func randomFaults(t *testing.T, c *chaos) {
	const campaigns, rate = 30, 20
	lasts := 5 * time.Minute
	if text := os.Getenv("CHAOS_LASTS"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		noError(t, err)
	}
	broker, way := proxiedSessions(t, "5000")
	store := testservices.FreshRedis(t)
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers, redis: store.Addr})
	catalog, dsn := c.catalogNetwork()
	settings := []string{
		dsn, "PACER_KAFKA_BROKERS=" + way.addr,
		"PACER_KAFKA_SASL_MECHANISM=plain", "PACER_KAFKA_SASL_USERNAME=pacer", "PACER_KAFKA_SASL_PASSWORD=pacer",
	}
	numbers, limited := map[string]int{}, []string{}
	for i := range campaigns {
		id := fmt.Sprintf("c%02d", i)
		c.campaign(id, rate)
		numbers[id] = rate * int(lasts.Seconds())
		if i%3 == 0 {
			limited = append(limited, id)
			numbers[id] /= 3
		}
	}
	c.windowed([]window{{150, time.Second}, {6000, time.Minute}}, limited)
	c.publish(mix(numbers))
	for _, name := range []string{"one", "two", "three"} {
		c.join(name, settings...)
	}
	for _, d := range c.up {
		d.awaitReady(time.Minute)
	}
	seconds := func(most int) time.Duration { return time.Duration(1000+c.random.IntN(1000*most)) * time.Millisecond }
	one := func() *daemon { return c.up[c.random.IntN(len(c.up))] }
	faults := []struct {
		name string
		do   func()
	}{
		{"daemon killed", func() {
			d := one()
			c.crash(d)
			time.Sleep(seconds(5))
			c.again(d, settings...)
			d.awaitReady(60 * time.Second)
		}},
		{"daemon suspended", func() { c.suspend(one(), seconds(13)) }},
		{"broker killed", func() { c.outage(func() { broker.kill(); time.Sleep(time.Second); broker.start() }) }},
		{"broker throttled", func() {
			c.shared(groupRecovery, func() {
				c.throttle(20_000)
				time.Sleep(seconds(10))
				c.throttle(0)
			})
		}},
		{"broker cut", func() { c.outage(func() { way.disturb(seconds(3), way.cut) }) }},
		{"broker silent", func() { c.outage(func() { way.disturb(seconds(12), way.silence) }) }},
		{"store killed", func() { c.shared(storeRecovery, func() { store.Kill(); time.Sleep(seconds(3)); store.Start(t) }) }},
		{"store emptied", func() { c.bystander.spare(rebuild); store.Flush(t) }},
		{"catalog away", func() { catalog.disturb(seconds(10), catalog.down) }},
	}
	done := map[string]int{}
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(seconds(6)) {
		f := faults[c.random.IntN(len(faults))]
		done[f.name]++
		f.do()
	}
	t.Log(done)
	c.recovers(lasts/2 + 5*time.Minute)
}

// throttle bounds the bytes that the broker gives the daemons in a second; 0: not any more.
func (c *chaos) throttle(bytes float64) {
	c.t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(c.brokers...), Timeout: 20 * time.Second, Transport: &kafka.Transport{}} // no connection to a broker that was killed
	answer, err := client.AlterClientQuotas(context.Background(), &kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{{
		Entities: []kafka.AlterClientQuotaEntity{{EntityType: "user", EntityName: "pacer"}},
		Ops:      []kafka.AlterClientQuotaOps{{Key: "consumer_byte_rate", Value: bytes, Remove: bytes == 0}},
	}}})
	noError(c.t, err)
	for _, e := range answer.Entries {
		noError(c.t, e.Error)
	}
}

// suspend stops a daemon's process for a while, as a machine that is short of processors or memory does. After the session timeout others
// get its partitions. Its open jobs may be sent again, and no others.
func (c *chaos) suspend(d *daemon, lasts time.Duration) {
	c.t.Helper()
	open := int(d.metric("pacer_jobs_in_flight"))
	since := c.receiver.now() - commitLag.Microseconds()
	noError(c.t, d.cmd.Process.Signal(syscall.SIGSTOP))
	recent := c.between("", since, c.receiver.now()) + c.bystander.since(commitLag)
	c.bystander.spare(groupRecovery)
	time.Sleep(lasts)
	noError(c.t, d.cmd.Process.Signal(syscall.SIGCONT))
	c.bystander.spare(rebalance)
	c.mayRepeat(open+recent, "a")
	c.await(60*time.Second, "the suspended daemon to be in the group again", func() bool { return d.metric("pacer_group_joined") == 1 })
}
