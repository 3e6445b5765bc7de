//go:build e2e

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/test/recording"
)

// laneTable collects what was measured of re-enqueueing and lanes, a row each.
type laneTable struct{ rows [][]string }

// add notes a figure. met judges a speed or a share, which a busy machine can spoil.
func (l *laneTable) add(t *testing.T, what, measured, wanted string, met bool) {
	t.Helper()
	verdict := "yes"
	if !met {
		verdict = "**no**"
	}
	row := []string{strings.TrimPrefix(t.Name(), "TestLanes/"), what, measured, wanted, verdict}
	t.Log("FIGURE  " + strings.Join(row, " | "))
	l.rows = append(l.rows, row)
}

// must notes a figure that fails the test if it is not met.
func (l *laneTable) must(t *testing.T, what, measured, wanted string, met bool) {
	t.Helper()
	if l.add(t, what, measured, wanted, met); !met {
		t.Errorf("%s: %s, want %s", what, measured, wanted)
	}
}

// none notes how many jobs were lost and sent twice, of which there may be none.
func (l *laneTable) none(t *testing.T, what string, lost, again int) {
	t.Helper()
	l.must(t, what, fmt.Sprintf("%d, %d", lost, again), "0, 0", lost+again == 0)
}

func (l *laneTable) print() {
	fmt.Print("\n| figure | what | measured | wanted | met |\n| --- | --- | --- | --- | --- |\n")
	for _, row := range l.rows {
		fmt.Println("| " + strings.Join(row, " | ") + " |")
	}
	fmt.Println()
}

// TestLanes measures re-enqueueing and lanes and prints one table. Each figure has a stack of its own on the shared
// services. It fails for what must never happen: a job lost, a rate exceeded, memory out of its bound.
func TestLanes(t *testing.T) {
	table := &laneTable{}
	defer table.print()
	for _, figure := range []struct {
		name    string
		measure func(*testing.T, *laneTable)
	}{
		{"raise", measureRaise}, {"cut", measureCut}, {"uneven", measureUneven}, {"many", measureMany},
		{"restart", measureRestart}, {"cancel", measureCancel}, {"rolling", measureRolling}, {"disk", measureDisk},
		{"order", measureOrder}, {"burst", measureBurst},
	} {
		t.Run(figure.name, func(t *testing.T) { figure.measure(t, table) })
	}
}

// laneJobs is the number of jobs of the figures whose size can be chosen: JOBS of the environment.
func laneJobs(t *testing.T, otherwise int) int {
	t.Helper()
	text := os.Getenv("JOBS")
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		t.Fatalf("JOBS=%s: want a number of at least 1000", text)
	}
	return n
}

// newLaneStack is a stack with that many lanes. Its sink "noted" accepts and records each job at once, where a receiver would be the
// bottleneck.
func newLaneStack(t *testing.T, lanes int) (*stack, *noted) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "noted")
	s := newStack(t, stackOptions{
		partitions: 6, lanes: lanes, sinks: fmt.Sprintf(`  noted: {type: discard, record: "%s"}`, file),
	})
	return s, &noted{t: t, file: recording.New(file), of: map[string]*notedCampaign{}}
}

// noted is what was handed to the sink of this name, by any daemon of the stack.
type noted struct {
	t     *testing.T
	file  *recording.File
	total int // jobs, each as often as it was sent
	of    map[string]*notedCampaign
}

type notedCampaign struct {
	at    []int64 // microseconds of the wall clock
	times []uint8 // how often each job was sent, by its number
}

// read takes in what was written down since the last call.
func (n *noted) read() *noted {
	n.t.Helper()
	noError(n.t, n.file.Next(func(at time.Time, campaign, id string) error {
		c := n.note(campaign, id)
		c.at = append(c.at, at.UnixMicro())
		return nil
	}))
	return n
}

// note counts a job.
func (n *noted) note(campaign, id string) *notedCampaign {
	c := n.of[campaign]
	if c == nil {
		c = &notedCampaign{}
		n.of[campaign] = c
	}
	number := numberOf(n.t, id)
	for len(c.times) <= number {
		c.times = append(c.times, 0)
	}
	c.times[number]++
	n.total++
	return c
}

// in counts a campaign's jobs in a stretch of time.
func (n *noted) in(campaign string, from, to time.Time) (count int) {
	if c := n.of[campaign]; c != nil {
		for _, at := range c.at {
			if at >= from.UnixMicro() && at < to.UnixMicro() {
				count++
			}
		}
	}
	return count
}

// noteArrivals adds the receiver's accepted jobs, for jobs that went to both.
func (n *noted) noteArrivals(list []arrival) {
	for _, a := range list {
		n.note(a.campaign, a.id)
	}
}

// fates counts the jobs that were never sent, given the number of jobs of each campaign, and those
// sent again.
func (n *noted) fates(ids []string, each int) (lost, again int) {
	for _, id := range ids {
		c := n.of[id]
		if c == nil {
			lost += each
			continue
		}
		lost += max(0, each-len(c.times))
		for _, times := range c.times {
			if times == 0 {
				lost++
			} else {
				again += int(times) - 1
			}
		}
	}
	return lost, again
}

// notAgain asserts that no job was sent twice.
func (n *noted) notAgain(ids ...string) {
	n.t.Helper()
	if _, again := n.fates(ids, 0); again > 0 {
		n.t.Errorf("%d jobs sent twice", again)
	}
}

// campaigns creates campaigns with one statement.
func (s *stack) campaigns(sink, status string, ids []string, rate func(i int) float64) {
	s.t.Helper()
	rates := make([]float64, len(ids))
	for i := range ids {
		rates[i] = rate(i)
	}
	s.sql(`INSERT INTO pacer.campaigns (id, sink, status, send_rate)
SELECT id, $1, $2, rate FROM unnest($3::text[], $4::float8[]) AS c(id, rate)`, sink, status, ids, rates)
}

// numbered are n ids of campaigns.
func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("c%d", i)
	}
	return ids
}

// publishTurns publishes a number of jobs of each campaign, one of each in turn, numbered from first
// on.
func (s *stack) publishTurns(ids []string, first, each int) {
	s.t.Helper()
	const atOnce = 120_000
	jobs := make([]job, 0, atOnce)
	for n := first; n < first+each; n++ {
		for _, id := range ids {
			if jobs = append(jobs, job{campaign: id, id: id + "-" + strconv.Itoa(n)}); len(jobs) == cap(jobs) {
				s.publish(jobs)
				jobs = jobs[:0]
			}
		}
	}
	s.publish(jobs)
}

// awaitLanes waits until a number of records has been written to the lanes.
func (s *stack) awaitLanes(within time.Duration, records int64) {
	s.t.Helper()
	s.await(within, fmt.Sprintf("%d jobs in lanes", records), func() bool {
		time.Sleep(200 * time.Millisecond)
		return s.everWritten("lanes") >= records
	})
}

// everWritten is how many records the broker was ever given for the stack's topics whose names end so.
func (s *stack) everWritten(part string) (n int64) {
	s.t.Helper()
	_, n = s.held(part)
	return n
}

// held is how many records lie in the stack's topics whose names hold part, and how many were ever written.
func (s *stack) held(part string) (now, ever int64) {
	s.t.Helper()
	begins, ends := s.kept(s.own(part))
	return ends - begins, ends
}

// uncommitted is how many records of the lanes lie behind what the group has committed.
func (s *stack) uncommitted() (n int64) {
	s.t.Helper()
	return s.everWritten("lanes") - s.committed(s.prefix+"lanes")
}

// committed is the sum of the offsets that the group has committed for a topic.
func (s *stack) committed(topic string) (n int64) {
	s.t.Helper()
	ctx := s.soon()
	for _, p := range s.commits(ctx, map[string][]int{topic: s.topics(ctx)[topic]})[topic] {
		n += p.CommittedOffset
	}
	return n
}

// oneHop notes how often jobs were written to lanes: nothing may be written there twice.
func (s *stack) oneHop(table *laneTable, d *daemon, jobs int) {
	s.t.Helper()
	again := d.metric("pacer_requeue_hops_count") - d.metric(`pacer_requeue_hops_bucket{le="1"}`)
	most := map[bool]string{true: "1", false: "more than 1"}[again == 0]
	average := float64(s.everWritten("lanes")) / float64(jobs)
	table.must(s.t, "re-enqueues per job", fmt.Sprintf("%.2f on average, at most %s", average, most), "at most 1", average <= 1 && again == 0)
}

// inMemory notes the daemon's peak of memory, which must be under a bound.
func (s *stack) inMemory(table *laneTable, d *daemon, bound int) {
	s.t.Helper()
	mib := d.peakRSS()
	table.must(s.t, "memory of a daemon, peak", fmt.Sprintf("%d MiB", mib), fmt.Sprintf("< %d MiB", bound), mib < bound)
}

// laneReads is how many records a daemon has read from lanes, with how many fetches, how many jobs it has sent, and how
// many slots it had to give up because it came too late for them.
type laneReads struct{ read, sent, fetches, forfeited float64 }

func (d *daemon) laneReads() laneReads {
	return laneReads{
		d.metric(`pacer_records_read_total{place="lane"}`), d.metric("pacer_slot_lateness_seconds_count"),
		d.metric(`pacer_fetches_total{place="lane",result="ok"}`), d.metric("pacer_slots_forfeited_total"),
	}
}

// readFactor notes how many records of the lanes the daemon has read per job sent since before.
func (s *stack) readFactor(table *laneTable, d *daemon, before laneReads) {
	s.t.Helper()
	now := d.laneReads()
	table.add(s.t, "records read from lanes per job sent meanwhile",
		fmt.Sprintf("%.2f", (now.read-before.read)/max(1, now.sent-before.sent)), "(printed)", true)
	s.t.Logf("%.0f records read before; then %.0f in %.0f fetches for %.0f jobs, %.0f slots forfeited; %.0f jobs queued", before.read,
		now.read-before.read, now.fetches-before.fetches, now.sent-before.sent, now.forfeited-before.forfeited,
		d.metric("pacer_jobs_queued"))
}
