package pacer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/testservices"
)

// days are a random history over a change of summer time. What was promised to a recipient is known from what was published, and from the settings.
type days struct {
	*world
	keys *keys

	// Under the lock of the world.
	promises map[string]*promise    // by the job's id
	sent     map[string][]time.Time // by the value of the key
	was, is  *delivery.ActiveHours  // before and since they were changed last
	changed  time.Time
}

type promise struct {
	key            string
	zone           *time.Location
	opens, expires time.Time
	delivered      int
}

// A value of the key is sent twice a minute.
const keySpan, keyLimit = time.Minute, 2

// promise publishes a job for a recipient in one of the zones.
func (d *days) promise(zones []*time.Location) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.random, time.Now()
	p := &promise{zone: of(l, zones...), key: of(l, "a", "b", "c", "d", "e", "f", "g", "h")}
	early, expires := of(l, 0, 0, l.millis(2_400_000)), of(l, 0, 0, 0, l.millis(5_400_000))
	var head []delivery.Header
	say := func(name, value string) { head = append(head, delivery.Header{Key: name, Value: []byte(value)}) }
	say(delivery.HeaderKey+"to", p.key)
	say(delivery.HeaderTimeZone, p.zone.String())
	if early > 0 {
		shown := now.Add(early).Truncate(time.Minute).In(p.zone)
		p.opens = notation.FirstShown(shown.Add(notation.Offset(shown)), p.zone) // clocks that are put back show it twice
		say(delivery.HeaderLocal, shown.Format("2006-01-02T15:04"))
	}
	if expires > 0 {
		p.expires = now.Add(expires).Truncate(time.Second)
		say(delivery.HeaderExpiresAt, p.expires.Format(time.RFC3339))
	}
	d.promises[d.publish("c", head...)] = p
}

// allow answers for the keys, under their lock. Jobs that are counted have not been sent yet.
func (d *days) allow(j *delivery.Job) delivery.KeyAnswer {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, key := time.Now(), d.promises[j.ID].key
	sent := slices.DeleteFunc(slices.Clone(d.sent[key]), func(at time.Time) bool { return now.Sub(at) > keySpan })
	count := len(sent)
	for other := range d.keys.counted {
		if d.promises[other.ID].key == key {
			count++
		}
	}
	switch {
	case count < keyLimit: // some hear of it too late
		return delivery.KeyAnswer{SendBy: delivery.StampOf(now.Add(d.random.millis(40) - 4*time.Millisecond))}
	case len(sent) > 0:
		return delivery.KeyAnswer{Wait: keySpan - now.Sub(sent[0]) + 1, Reason: delivery.ReasonKey}
	}
	return delivery.KeyAnswer{Wait: time.Second, Reason: delivery.ReasonRetry}
}

// Resolve, Capacity and Deliver are those of the sinks, which see that all promises are kept.
func (*days) Resolve(string) (string, bool) { return "sink", true }
func (*days) Capacity(string) (int, bool)   { return 4, true }

func (d *days) Deliver(_ context.Context, _ string, j *delivery.Job) delivery.Result {
	d.mu.Lock()
	p, now, lasts, result := d.promises[j.ID], time.Now(), d.random.millis(300), delivery.Result{Class: delivery.Delivered}
	within := func(h *delivery.ActiveHours) bool {
		return h == nil || h.In(p.zone).Active(now.Add(-100*time.Millisecond)) || h.In(p.zone).Active(now)
	}
	sent := append(d.sent[p.key], now)
	d.sent[p.key] = sent
	for what, broken := range map[string]bool{
		"before its time": now.Before(p.opens), "too late": !p.expires.IsZero() && now.After(p.expires.Add(100*time.Millisecond)),
		"outside the hours": !within(d.is) && (now.Sub(d.changed) > time.Second || !within(d.was)), "twice": p.delivered+d.jobs[j.ID].ends > 0,
		"too soon after others of its key": len(sent) > keyLimit && now.Sub(sent[len(sent)-1-keyLimit]) < keySpan,
	} {
		if broken {
			d.wrong = fmt.Sprintf("job %s is sent %s, at %s: %+v", j.ID, what, now.In(p.zone), *p)
		}
	}
	if d.random.IntN(8) == 0 {
		result = delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
	} else {
		p.delivered++
	}
	d.mu.Unlock()
	time.Sleep(lasts)
	return result
}

// TestJobsOverDays: whatever is changed, moved and restarted meanwhile, each job is delivered once, within the hours of its recipient, between its
// times and within the limit of its key, or expires.
func TestJobsOverDays(t *testing.T) {
	testservices.Simulation(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playDays(t, seed) })
		})
	}
}

func playDays(t *testing.T, seed uint64) {
	time.Sleep(time.Until(time.Date(2026, 10, 24, 23, 30, 0, 0, time.UTC))) // Europe puts its clocks back soon
	choose := life{rand.New(rand.NewPCG(seed, 1))}
	d := &days{promises: map[string]*promise{}, sent: map[string][]time.Time{}}
	d.keys = &keys{takes: 15 * time.Millisecond, count: d.allow}
	d.world = newWorld(seed, newBook(), 5*time.Second, func(o *Options) { o.Keys, o.Sinks = d.keys, keySinks{d, d.keys} })
	c := keyedCampaign(0)
	c.Rate, _ = delivery.NewRate(15_000_000, time.Minute)
	set := func(status delivery.Status, avoid ...int) {
		hours, err := delivery.NewActiveHours(nil, time.UTC, avoid...)
		must(t, err, nil, "hours")
		d.mu.Lock()
		d.was, d.is, d.changed = d.is, hours, time.Now()
		d.mu.Unlock()
		c.Status, c.Local = status, hours
		d.book.set(c)
	}
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland"} {
		zone, err := time.LoadLocation(name)
		must(t, err, nil, "a zone")
		zones = append(zones, zone)
	}
	ctx, end := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			d.read()
		}
	})
	for range 40 {
		for range choose.IntN(12) {
			d.promise(zones)
		}
		time.Sleep(choose.millis(40_000))
		switch minute := choose.IntN(15); choose.IntN(8) { // of the quarters, of which four are avoided
		case 0:
			set(delivery.StatusPaused, minute)
		case 1, 2, 3:
			set(delivery.StatusActive, minute, minute+15, minute+30, minute+45)
		case 4, 5:
			d.move(d.logs[choose.IntN(6)])
		case 6:
			d.restart(choose.IntN(2))
		case 7:
			time.Sleep(choose.millis(1_500_000))
		}
	}
	set(delivery.StatusActive)
	time.Sleep(80 * time.Minute)
	end()
	reader.Wait()
	must(t, d.end(), "", "what is wrong")
	must(t, len(d.keys.counted)+d.keys.unasked, 0, "jobs are counted that were not sent, or sent that were not counted")
}
