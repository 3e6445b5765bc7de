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
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/testservices"
)

// days are a random history of two daemons over a change of summer time. Ingress, the lane and a timer have two partitions each, and each is one
// daemon's at a time. What was promised to a recipient is known from what was published, and from the settings.
type days struct {
	*fleet
	outbox
	t    *testing.T
	keys *keys

	mu       sync.Mutex // guards everything below
	random   life
	logs     []*partitionLog
	promises map[string]*promise    // by the job's id
	sent     map[string][]time.Time // by the value of the key
	was, is  *delivery.ActiveHours  // before and since they were changed last
	changed  time.Time
}

type promise struct {
	key              string
	zone             *time.Location
	opens, expires   time.Time
	delivered, ended int
}

// A value of the key is sent twice a minute.
const keySpan, keyLimit = time.Minute, 2

// Put writes a job to the lane, or to the timer, which lasts ten minutes, so that some go there twice.
func (d *days) Put(j *delivery.Job, to delivery.Reroute) {
	now := time.Now()
	r := new(record.Encoder).Encode(j, to, now)
	switch to.Kind {
	case delivery.ToDead:
		j.Settle(delivery.OutcomeDead)
		return
	case delivery.ToTimer:
		d.add(2, r, now.Add(min(10*time.Minute, max(0, record.DueAt(j, to).Sub(now)))))
	default:
		d.add(1, r, now)
	}
	j.Settle(delivery.OutcomeRequeued)
}

// publish writes a job for a recipient in one of the zones.
func (d *days) publish() {
	d.mu.Lock()
	l, id, now, p := d.random, fmt.Sprint(len(d.promises)), time.Now(), &promise{}
	d.promises[id] = p
	name, key := of(l, "UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland"), of(l, "a", "b", "c", "d", "e", "f", "g", "h")
	early, expires := of(l, 0, 0, l.millis(2_400_000)), of(l, 0, 0, 0, l.millis(5_400_000))
	d.mu.Unlock()
	zone, err := time.LoadLocation(name)
	must(d.t, err, nil, "a zone")
	*p = promise{key: key, zone: zone}
	r := record.New("c", id, nil)
	head := func(name, value string) {
		r.Headers = append(r.Headers, delivery.Header{Key: name, Value: []byte(value)})
	}
	head(delivery.HeaderKey+"to", key)
	head(delivery.HeaderTimeZone, name)
	if early > 0 {
		shown := now.Add(early).Truncate(time.Minute).In(zone)
		p.opens = notation.FirstShown(shown.Add(notation.Offset(shown)), zone) // clocks that are put back show it twice
		head(delivery.HeaderLocal, shown.Format("2006-01-02T15:04"))
	}
	if expires > 0 {
		p.expires = now.Add(expires).Truncate(time.Second)
		head(delivery.HeaderExpiresAt, p.expires.Format(time.RFC3339))
	}
	d.add(0, r, now)
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
		"outside the hours": !within(d.is) && (now.Sub(d.changed) > time.Second || !within(d.was)), "twice": p.delivered+p.ended > 0,
		"too soon after others of its key": len(sent) > keyLimit && now.Sub(sent[len(sent)-1-keyLimit]) < keySpan,
	} {
		if broken {
			d.t.Errorf("job %s is sent %s, at %s: %+v", j.ID, what, now.In(p.zone), *p)
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
	d := &days{t: t, random: life{rand.New(rand.NewPCG(seed, 2))}, promises: map[string]*promise{}, sent: map[string][]time.Time{}}
	d.keys = &keys{takes: 15 * time.Millisecond, count: d.allow}
	d.fleet = newFleet(2, uniform(3, 500*time.Microsecond, 0), newBook(), func(o *Options) {
		o.Keys, o.Requeuer, o.Sinks = d.keys, d, keySinks{d, d.keys}
	})
	defer d.stop()
	for i := range 6 {
		d.logs = append(d.logs, &partitionLog{from: delivery.Place(i / 2), owner: i % 2, source: newPartition("")})
	}
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
	ctx, end := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			for _, l := range d.logs {
				d.read(l)
			}
		}
	})
	for range 40 {
		for range choose.IntN(12) {
			d.publish()
		}
		time.Sleep(choose.millis(40_000))
		switch minute := choose.IntN(15); choose.IntN(8) { // of the quarters, of which four are avoided
		case 0:
			set(delivery.StatusPaused, minute)
		case 1, 2, 3:
			set(delivery.StatusActive, minute, minute+15, minute+30, minute+45)
		case 4, 5, 6:
			d.move(d.logs[choose.IntN(6)], choose.IntN(3) == 0)
		case 7:
			time.Sleep(choose.millis(1_500_000))
		}
	}
	set(delivery.StatusActive)
	time.Sleep(80 * time.Minute)
	end()
	reader.Wait()
	for id, p := range d.promises {
		if p.ended != 1 {
			t.Errorf("job %s has %d ends: %+v", id, p.ended, *p)
		}
	}
	must(t, len(d.keys.counted)+d.keys.unasked, 0, "jobs are counted that were not sent, or sent that were not counted")
}
