package test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// memoryCases are about everything at once that needs memory.
var memoryCases = []chaosCase{
	{"everything-that-takes-memory", false, everythingThatTakesMemory, telling{metric: "pacer_quota_denied_total"}},
}

// everythingThatTakesMemory has ten thousand paused campaigns, large jobs, compressed ones, batches that decompress to half a
// gigabyte, calls that hang, and a quota that is used up. Every daemon stays within the memory that docs/operations/deploy.md states.
func everythingThatTakesMemory(t *testing.T, c *chaos) {
	const (
		paused = 10_000
		bound  = (192 + paused*32>>10) * 6 / 5 // MiB
	)
	c.world(t, stackOptions{partitions: 6, lanes: 128})
	c.sinkSettings(fmt.Sprintf("max_in_flight: 256, timeout: 20s}\n  slow: {type: http, url: %q, max_in_flight: 64, timeout: 20s", c.receiver.url))
	c.sql(`INSERT INTO pacer.campaigns (id, send_rate, status) SELECT 'paused-' || n, 10, 'paused' FROM generate_series(1, $1) n`, paused)
	waiting := make([]job, paused)
	for i := range waiting {
		waiting[i] = job{campaign: fmt.Sprint("paused-", i+1), id: fmt.Sprint("waits-", i+1)}
		c.published[waiting[i].id] = waiting[i].campaign
	}
	c.stack.publish(waiting) // nobody need explain each of them

	c.campaign("large", 50)
	c.campaign("compressed", 50)
	c.campaign("hangs", 200)
	c.campaign("used-up", 200)
	c.sql(`UPDATE pacer.campaigns SET sink = 'slow' WHERE id = 'hangs'`)
	c.receiver.answersAfter("hangs", 5*time.Second)
	c.quota("daily", 50, 24*time.Hour, "used-up")
	c.publish(padded(ofCampaign("used-up", 0, 1000), 100<<10))
	c.publish(padded(ofCampaign("hangs", 0, 500), 300<<10))
	c.publish(padded(ofCampaign("large", 0, 400), 900<<10))
	for i, codec := range []kafka.Compression{kafka.Gzip, kafka.Lz4, kafka.Zstd} {
		c.compressed(codec, padded(further("compressed", fmt.Sprint("large-", i), 5), 10<<20)...)
		bombs := padded(further("compressed", fmt.Sprint("bomb-", i), 8), 64<<20)
		c.compressed(codec, bombs...)
		for _, b := range bombs {
			delete(c.published, b.id) // none of them is sent
		}
	}
	daemons := c.joinAll("one", "two")
	c.await(3*time.Minute, "what may be sent", func() bool {
		return !slices.ContainsFunc([]string{"large", "compressed", "hangs"}, func(id string) bool {
			n, _ := c.receiver.accepted(id)
			return n < c.of(id)
		})
	})
	// A rebalance waits for less than a call that hangs, and both daemons will stop.
	c.await(30*time.Second, "the answers", func() bool {
		return !slices.ContainsFunc(daemons, func(d *daemon) bool { return d.metric("pacer_jobs_in_flight") > 2 }) // of the bystander
	})
	reasons := map[string]int{}
	for reason := range maps.Values(c.dead()) {
		reasons[reason]++
	}
	if reasons["too_large"]+reasons["undecodable"] == 0 {
		t.Errorf("dead letters: %v", reasons)
	}
	for _, d := range daemons {
		if mib := d.peakRSS(); mib > bound {
			t.Errorf("%s: %d MiB resident at the peak, more than %d", d.name, mib, bound)
		} else {
			t.Logf("%s: %d MiB resident at the peak, of %d", d.name, mib, bound)
		}
	}
}

// padded makes the payload of jobs this long, with bytes that compress well.
func padded(jobs []job, size int) []job {
	space := bytes.Repeat([]byte(" "), size)
	for i := range jobs {
		payload := payloadOf(jobs[i].id)
		jobs[i].payload = append(payload, space[:size-len(payload)]...)
	}
	return jobs
}
