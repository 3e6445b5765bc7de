package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// upgradeCases are about daemons of two versions in one group.
var upgradeCases = []chaosCase{
	{"rolling-upgrade-and-back", false, rollingUpgrade},
}

// versionBefore is the commit of the last release.
const versionBefore = "cc8daa8"

// rollingUpgrade begins with two daemons of the version before on the schema of this one, replaces them one after the
// other, in order, and goes back again, while jobs are sent directly and from lanes: one of a campaign that the version
// before keeps in one lane, and this one in several.
func rollingUpgrade(t *testing.T, c *chaos) {
	before := buildBefore(t)
	c.world(t, stackOptions{partitions: 6, lanes: stripedLanes - 1})
	now := c.binary
	c.load(40, map[string]float64{"fast": 100, "slow": 10})
	c.campaign("waits", c.rate(20))
	c.publish(mix(map[string]int{"waits": c.jobs(600)}))
	const wide = 8000 // jobs, more than are sent in five seconds
	c.campaign("wide", 1000)
	c.publish(ofCampaign("wide", 0, wide))
	c.binary = before
	c.join("one")
	c.join("two")
	for i, binary := range []string{now, before} {
		c.binary = binary
		for _, name := range []string{"one", "two"} {
			time.Sleep(5 * time.Second)
			d := c.rolled(name)
			c.again(d)
			d.awaitReady(20 * time.Second)
		}
		c.publish(ofCampaign("wide", (1+i)*wide, wide))
		if binary == now {
			c.await(20*time.Second, "the campaign to get more lanes", func() bool { return len(c.stripes("wide")) > 1 })
		}
	}
	c.binary = now
	time.Sleep(5 * time.Second)
	c.healed()
	c.setRate("waits", c.rate(200), 0)
	c.delivered(2 * time.Minute)
	c.oneHop(len(c.published))
}

// buildBefore builds the version before from the history of this checkout.
func buildBefore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "source"), filepath.Join(dir, "pacer")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`set -e
git archive --format=tar %s > "$1/before.tar"
tar -x -C "$1/source" -f "$1/before.tar"
cd "$1/source"
CGO_ENABLED=0 go build -trimpath -o "$1/pacer" ./cmd/pacer`, versionBefore)
	cmd := exec.Command("bash", "-c", script, "bash", dir)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the version before, for which the history is needed: %v\n%s", err, out)
	}
	return binary
}
