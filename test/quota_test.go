package test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// quota creates a quota with windows such as 40/1s, in the order of the arguments.
func (s *stack) quota(id, onFailure string, windows ...string) {
	s.t.Helper()
	args := []string{"quota", "set", id, "--on-store-failure", onFailure}
	for _, w := range windows {
		args = append(args, "--window", w)
	}
	s.run(args...)
}

// under puts campaigns under a quota.
func (s *stack) under(quota string, campaigns ...string) {
	s.t.Helper()
	for _, c := range campaigns {
		s.sql(`INSERT INTO pacer.campaign_quotas (campaign_id, quota_id) VALUES ($1, $2)`, c, quota)
	}
}

// window is a limit and its span.
type window struct {
	limit int
	span  time.Duration
}

// textsOf are windows as commands take them.
func textsOf(windows []window, ending string) (texts []string) {
	for _, w := range windows {
		texts = append(texts, fmt.Sprintf("%d/%s%s", w.limit, w.span, ending))
	}
	return texts
}

// sharedQuota has three daemons send three campaigns under one quota, until n jobs have arrived. It asserts the windows. It returns the
// time taken, and how far a campaign is off its third, as a fraction. The first of the shortest spans does not count: it belongs to the
// jobs that are read first.
func (s *stack) sharedQuota(n int, algorithm string, windows ...window) (took time.Duration, off float64) {
	s.t.Helper()
	s.quota("q", "closed", textsOf(windows, ":"+algorithm)...)
	jobs := map[string]int{}
	for _, c := range []string{"a", "b", "c"} {
		s.campaign(c, 200)
		s.under("q", c)
		jobs[c] = n
	}
	s.fleet("one", "two", "three")
	s.publish(mix(jobs))
	s.await(3*time.Minute, fmt.Sprintf("%d jobs", n), func() bool { return s.receiver.count("") >= n })
	list := s.receiver.arrivals("")
	for _, w := range windows {
		s.withinWindow(list, w.limit, w.span)
	}
	shared := slices.DeleteFunc(slices.Clone(list), func(a arrival) bool { return a.at < list[0].at+windows[0].span.Microseconds() })
	for c := range jobs {
		got := 0
		for _, a := range shared {
			if a.campaign == c {
				got++
			}
		}
		part := float64(got) / float64(len(shared))
		s.t.Logf("%s: %d of %d", c, got, len(shared))
		off = max(off, 3*part-1, 1-3*part)
	}
	return time.Duration(list[n-1].at-list[0].at) * time.Microsecond, off
}

// TestCampaignsShareAQuota: three daemons, three campaigns, one quota of three windows, through a second of the longest.
func TestCampaignsShareAQuota(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 6})
	took, off := s.sharedQuota(200, "sliding", window{40, time.Second}, window{100, 4 * time.Second}, window{160, 8 * time.Second})
	t.Logf("%s, a campaign at most %.1f %% off its third", took, 100*off)
	if took > 16*time.Second { // the windows allow it within 8.2 s
		t.Errorf("200 jobs took %s", took)
	}
	if off > 0.3 {
		t.Errorf("a campaign is %.0f %% off its third", 100*off)
	}
}

// storeFailure freezes the quota store for so long under load. Each failure policy has a campaign with a quota of
// 40 in a second.
type storeFailure struct {
	*stack
	store        *testservices.Redis
	daemons      []*daemon
	frozen, back int64 // the receiver's time
}

func newStoreFailure(t *testing.T, lasts time.Duration) *storeFailure {
	t.Helper()
	f := &storeFailure{store: testservices.FreshRedis(t)}
	f.stack = newStack(t, stackOptions{partitions: 6, redis: f.store.Addr})
	jobs := map[string]int{}
	for _, policy := range []string{"closed", "local-share", "open"} {
		f.quota("q-"+policy, policy, "40/1s")
		f.campaign(policy, 100)
		f.under("q-"+policy, policy)
		jobs[policy] = 3000
	}
	f.daemons = f.fleet("one", "two")
	f.publish(mix(jobs))
	// Daemons that asked for a campaign for less than two seconds do not know yet who else does, and send nothing of it then.
	f.await(20*time.Second, "the first four seconds", func() bool { return f.receiver.count("closed") > 160 })
	f.frozen = f.receiver.now()
	f.store.Freeze()
	time.Sleep(lasts)
	f.store.Thaw()
	f.back = f.receiver.now()
	return f
}

// during are the arrivals of a campaign from one time of the receiver to another.
func (s *stack) during(campaign string, from, to int64) []arrival {
	return slices.DeleteFunc(s.receiver.arrivals(campaign), func(a arrival) bool { return a.at < from || a.at >= to })
}

// between counts them.
func (s *stack) between(campaign string, from, to int64) int {
	return len(s.during(campaign, from, to))
}

// resumed is how long after the store's return the campaign's first job arrived.
func (f *storeFailure) resumed(campaign string) time.Duration {
	f.t.Helper()
	f.await(10*time.Second, "jobs after the store's return", func() bool {
		return f.between(campaign, f.back, f.receiver.now()) > 0
	})
	return time.Duration(f.during(campaign, f.back, forever)[0].at-f.back) * time.Microsecond
}

// TestFrozenStore: what each policy sends while the quota store does not answer, and that no limit is broken before,
// during and after.
func TestFrozenStore(t *testing.T) {
	t.Parallel()
	f := newStoreFailure(t, 5*time.Second)
	t.Logf("closed resumes %s after the store's return", f.resumed("closed").Round(time.Millisecond))
	for _, policy := range []string{"closed", "local-share", "open"} {
		f.await(20*time.Second, policy+" after the outage", func() bool { return f.between(policy, f.back, f.receiver.now()) >= 80 })
	}
	// Slots are granted for the next 75 ms and used up to 20 ms late.
	if n := f.between("closed", f.frozen+200_000, f.back); n > 0 {
		t.Errorf("closed: %d jobs sent while the store was frozen", n)
	}
	local, open := f.between("local-share", f.frozen+1_000_000, f.back), f.between("open", f.frozen+1_000_000, f.back)
	t.Logf("in 4 s of the outage: local-share %d, open %d", local, open)
	if local < 50 {
		t.Errorf("local-share: only %d jobs in 4 s", local)
	}
	if open < 100 { // a busy machine learns late that the store is gone
		t.Errorf("open: only %d jobs in 4 s at 100/s", open)
	}
	f.withinWindow(f.receiver.arrivals("closed"), 40, time.Second)
	f.withinWindow(f.receiver.arrivals("local-share"), 40, time.Second)
	for _, c := range []string{"closed", "local-share", "open"} {
		f.withinBound(c, 100)
	}
	alerts := 0
	for _, d := range f.daemons {
		alerts += d.log.lines("level=ERROR")
		d.stop()
	}
	if alerts == 0 {
		t.Error("nobody was alerted that a quota was open")
	}
}

// TestLostData: the quota store loses everything, by FLUSHALL and by a restart, in the middle of a day's window and of
// short ones. The day is not granted anew, and the short windows wait a span.
func TestLostData(t *testing.T) {
	t.Parallel()
	store := testservices.FreshRedis(t)
	s := newStack(t, stackOptions{partitions: 6, redis: store.Addr})
	s.quota("day", "closed", "20000/1d")
	s.quota("short", "closed", "60/3s")
	for _, c := range []string{"day", "short"} {
		s.campaign(c, 200)
		s.under(c, c)
	}
	s.startTwo()
	s.publish(mix(map[string]int{"day": 12_000, "short": 1000}))
	s.await(20*time.Second, "some jobs", func() bool { return s.receiver.count("day") > 600 })
	for _, lose := range []struct {
		how string
		do  func()
	}{
		{"FLUSHALL", func() { store.Flush(t) }},
		{"a restart without its data", func() { store.Kill(); store.Start(t) }},
	} {
		lose.do()
		at := s.receiver.now()
		for _, c := range []string{"day", "short"} {
			s.await(15*time.Second, c+" after "+lose.how, func() bool { return s.between(c, at+500_000, s.receiver.now()) > 10 })
		}
		time.Sleep(time.Second)
	}
	s.withinWindow(s.receiver.arrivals("short"), 60, 3*time.Second)
	for _, c := range []string{"day", "short"} {
		s.withinBound(c, 200)
	}
	// After both losses the store's remainder of the day is at most the unsent units.
	var shown struct {
		Windows []struct{ Remaining int }
	}
	s.unmarshal(s.run("quota", "show", "day", "--json"), &shown)
	sent := s.receiver.count("day")
	remaining := shown.Windows[0].Remaining
	t.Logf("%d sent, %d remain of 20,000", sent, remaining)
	if remaining > 20_000-sent+50 { // the show is older than the count by some jobs
		t.Errorf("%d sent and %d remain of 20,000", sent, remaining)
	}
	if remaining == 0 {
		t.Error("nothing remains")
	}
}

// TestQuotasAfterARestart: campaigns with a backlog in lanes, under quotas that the ledger keeps, go on after every
// restart of the daemon.
func TestQuotasAfterARestart(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 4})
	jobs := map[string]int{}
	for i := range 6 {
		quota, campaign := fmt.Sprint("q", i), fmt.Sprint("c", i)
		s.quota(quota, "closed", "1000/10s", "100000/1h", "1000000/1d")
		s.campaign(campaign, 20)
		s.under(quota, campaign)
		jobs[campaign] = 1500
	}
	s.publish(mix(jobs))
	for life := range 3 {
		d := s.started(fmt.Sprint("life ", life))
		began := s.receiver.now()
		for c := range jobs {
			s.await(10*time.Second, c, func() bool { return s.between(c, began, s.receiver.now()) > 20 })
		}
		d.stop()
	}
	for c := range jobs {
		s.withinBound(c, 20)
	}
}
