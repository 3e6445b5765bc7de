package pacer

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestJobsThatWaitForTheirKeys leave their queue before their slots come, each once, and use none; those that go at once are not asked about. A job
// outside its recipient's hours is not either: a cap must not count the evening.
func TestJobsThatWaitForTheirKeys(t *testing.T) {
	c := keyedCampaign(100)
	c.Local = localHours(t, 10*60, 20*60)
	const n, night = 200, 190
	asked := map[int64]int{}
	k := &keys{takes: 20 * time.Millisecond, reserve: func(j *delivery.Job) (told delivery.KeyAnswer) { // others are sent meanwhile
		switch asked[j.Offset]++; j.Offset % 4 {
		case 0:
			told = delivery.KeyAnswer{Wait: time.Hour, Reason: delivery.ReasonKey}
		case 1:
			told = delivery.KeyAnswer{Wait: time.Hour, Capped: "cap"}
		}
		return told
	}}
	one(t, newBook(c), func(o *Options) { o.Keys = k }, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, n)
		for i, j := range list {
			if j.Zone = showing(12, 0, 0); i >= night {
				j.Zone = showing(23, 0, 0)
			}
		}
		f.offer(t, list)
		time.Sleep(3 * time.Second)
		k.mu.Lock()
		asked := maps.Clone(asked)
		k.mu.Unlock()
		kept, first := 0, int64(n)
		for offset, times := range asked {
			if first = min(first, offset); offset%4 < 2 {
				kept++
			}
			if times > 1 || offset >= night {
				t.Errorf("job %d was asked about %d times", offset, times)
			}
		}
		sent := f.receiver.history()
		if first < 45 || first > 60 || len(asked) != int(night-first) || len(sent) != night-kept {
			t.Errorf("%d jobs were asked about, from the %dth on; %d are kept, %d were sent", len(asked), first, kept, len(sent))
		}
		for _, a := range sent[first:] {
			if i := slices.IndexFunc(list, func(j *delivery.Job) bool { return j.ID == a.id }); i%4 < 2 {
				t.Errorf("%s was sent", a.id)
			}
		}
		atMost(t, sent[len(sent)-1].at-sent[0].at, int64(len(sent))*10_300, "µs for %d jobs", len(sent))
		later, capped := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKey), src.count(delivery.OutcomeCapped)
		if later+capped != kept || later < 30 || capped < 30 {
			t.Errorf("of %d jobs, %d wait and %d are capped", kept, later, capped)
		}
		back := jobs(newPartition("timer/0"), delivery.FromTimer, "c", 0, 10) // from the first of two timers
		for _, j := range back {
			j.Zone, j.Reason, j.Due = showing(12, 0, 0), string(delivery.ReasonKey), time.Now().Add(20*time.Second)
		}
		f.offer(t, back)
		exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKey)-later, len(back), "jobs wait on for their turns")
	})
}

// TestAJobWithoutATurn, since its key has given turns for an hour, waits for one in timers, and asks for it when it comes back.
func TestAJobWithoutATurn(t *testing.T) {
	asked := map[bool]int{}
	k := &keys{takes: 20 * time.Millisecond, reserve: func(j *delivery.Job) delivery.KeyAnswer {
		asked[j.From == delivery.FromTimer]++
		return delivery.KeyAnswer{Wait: time.Hour, Reason: delivery.ReasonKeyLine}
	}}
	one(t, newBook(keyedCampaign(10)), func(o *Options) { o.Keys = k }, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 30))
		time.Sleep(5 * time.Second)
		back := jobs(newPartition("timer/0"), delivery.FromTimer, "c", 0, 40)
		for i, j := range back {
			if j.Reason = string(delivery.ReasonKeyLine); i < 10 { // there is another timer before the hour has passed
				j.Due = time.Now().Add(20 * time.Second)
			}
		}
		f.offer(t, back)
		time.Sleep(5 * time.Second)
		k.mu.Lock()
		defer k.mu.Unlock()
		later := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKeyLine)
		if asked[false] == 0 || asked[true] == 0 || later != asked[false]+asked[true]+10 {
			t.Errorf("asked about turns: %v; %d jobs wait in timers", asked, later)
		}
	})
}

// TestTurnsOutliveARevocation: a job that waits in memory for its turn goes to a timer, and to no turn of another job.
func TestTurnsOutliveARevocation(t *testing.T) {
	turns := map[string]time.Time{}
	k := &keys{takes: 20 * time.Millisecond, reserve: func(j *delivery.Job) delivery.KeyAnswer {
		wait := 3*time.Second + time.Duration(j.Offset)*time.Millisecond
		turns[j.ID] = time.Now().Add(wait)
		return delivery.KeyAnswer{Wait: wait, Reason: delivery.ReasonKey}
	}}
	one(t, newBook(keyedCampaign(10)), func(o *Options) { o.Keys = k }, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		f.offer(t, jobs(src, delivery.FromIngress, "c", 0, 30))
		time.Sleep(time.Second)
		f.revoke(t, src)
		atLeast(t, len(turns), 10, "have turns")
		exactly(t, src.count(delivery.OutcomeRetried), len(turns), "in timers")
		for _, p := range f.outboxes[0].puts {
			if to := p.to; to.Kind != delivery.ToTimer || to.Reason != delivery.ReasonKey || !to.Due.Equal(turns[p.job.ID]) {
				t.Errorf("%s has its turn at %s, and goes on as %+v", p.job.ID, turns[p.job.ID], to)
			}
		}
	})
}

// TestTurnsOutliveAPause: a job that waits for its turn in a timer goes on to do so while its campaign is paused. One whose turn has
// come goes to the lane.
func TestTurnsOutliveAPause(t *testing.T) {
	paused := as(delivery.StatusPaused, keyedCampaign(100))
	one(t, newBook(paused), func(o *Options) { o.Keys = &keys{} }, func(t *testing.T, f *fleet) {
		list := jobs(newPartition("timer/0"), delivery.FromTimer, "c", 0, 10)
		for i, j := range list {
			j.Reason, j.Due = string(delivery.ReasonKey), time.Now().Add(time.Duration(i%2)*time.Minute)
		}
		f.offer(t, list)
		time.Sleep(time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonKey), 5, "jobs wait for their turns")
		exactly(t, f.outboxes[0].count(delivery.ToLane, delivery.ReasonOverflow), 5, "in the lane")
	})
}

// TestTurnsOfJobsThatHaveLeft are given up: who waits in a queue asks for its turn, and has gone when the answer comes.
func TestTurnsOfJobsThatHaveLeft(t *testing.T) {
	k := &keys{takes: 300 * time.Millisecond, reserve: func(*delivery.Job) delivery.KeyAnswer {
		return delivery.KeyAnswer{Wait: time.Hour, Reason: delivery.ReasonKey}
	}}
	one(t, newBook(keyedCampaign(1)), func(o *Options) { o.Keys = k }, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 3))
		time.Sleep(100 * time.Millisecond)
		f.book.set(as(delivery.StatusPaused, keyedCampaign(1)))
		time.Sleep(time.Second)
		k.mu.Lock()
		defer k.mu.Unlock()
		if moved := len(f.outboxes[0].puts); k.left == 0 || k.left > moved {
			t.Errorf("%d jobs have left, %d turns are given up", moved, k.left)
		}
	})
}
