package test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// randomCases draw their faults.
var randomCases = []chaosCase{
	{"random-faults", false, randomFaults, telling{}},
}

// randomFaults does at random, one after the other, for five minutes and to thirty campaigns on three daemons: kill a
// daemon, suspend one for up to 14 s, kill the broker.
func randomFaults(t *testing.T, c *chaos) {
	const campaigns, rate, lasts = 30, 20, 5 * time.Minute
	broker := freshKafka(t, "")
	c.world(t, stackOptions{partitions: 6, brokers: broker.brokers})
	numbers := map[string]int{}
	for i := range campaigns {
		id := fmt.Sprintf("c%02d", i)
		c.campaign(id, rate)
		numbers[id] = rate * int(lasts.Seconds())
	}
	c.publish(mix(numbers))
	c.joinAll("one", "two", "three")
	faults := map[string]int{}
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(time.Duration(2000+c.random.IntN(6000)) * time.Millisecond) {
		d := c.up[c.random.IntN(len(c.up))]
		switch c.random.IntN(3) {
		case 0:
			faults["kills"]++
			c.crash(d)
			time.Sleep(time.Duration(c.random.IntN(5000)) * time.Millisecond)
			c.again(d)
			d.awaitReady(60 * time.Second)
		case 1:
			faults["suspensions"]++
			c.suspend(d, time.Duration(1000+c.random.IntN(13_000))*time.Millisecond)
		case 2:
			faults["broker kills"]++
			c.outage(func() {
				broker.kill()
				time.Sleep(time.Second)
				broker.start()
			})
		}
	}
	t.Log(faults)
	c.healed()
	c.delivered(5 * time.Minute)
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
