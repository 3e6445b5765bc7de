package pacer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

func localHours(t testing.TB, from, to int) *delivery.ActiveHours {
	t.Helper()
	h, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: from, To: to}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// showing is a zone whose clocks show a time of the day now.
func showing(hour, minute, second int) *time.Location {
	now := time.Now().UTC()
	ahead := 3600*(hour-now.Hour()) + 60*(minute-now.Minute()) + second - now.Second()
	return time.FixedZone(fmt.Sprintf("%02d:%02d:%02d", hour, minute, second), ahead)
}

// TestRecipientsHours: a job whose recipient's hours end while it waits in its queue is not sent and takes no slot from the others; it comes back when
// they begin. One whose hours begin soon waits here.
func TestRecipientsHours(t *testing.T) {
	c := campaign("c", 10)
	c.Local = localHours(t, 10*60, 20*60)
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		src, began := newPartition("in/0"), time.Now()
		list := jobs(src, delivery.FromIngress, "c", 0, 48)
		closing, opening, night, day := showing(19, 59, 57), showing(9, 59, 58), showing(23, 0, 0), showing(12, 0, 0)
		for i, j := range list {
			j.Zone = closing
			switch {
			case i >= 47:
				j.Zone = nil
			case i >= 46:
				j.Zone = night
			case i >= 45:
				j.Zone = opening
			case i >= 35:
				j.Zone = day
			}
		}
		f.offer(t, list)
		time.Sleep(20 * time.Second)
		sent := map[*time.Location]int{}
		for _, a := range f.receiver.history() {
			for _, j := range list {
				if j.ID == a.id {
					sent[j.Zone]++
					if clock := began.Add(time.Duration(a.at-f.receiver.history()[0].at) * time.Microsecond).In(j.Zone); clock.Hour() < 10 || clock.Hour() >= 20 {
						t.Errorf("%s was sent at %s", j.ID, clock)
					}
				}
			}
		}
		if sent[day] != 10 || sent[opening] != 1 || sent[night] != 0 || sent[nil] != 0 || sent[closing] < 25 || sent[closing] > 31 {
			t.Errorf("sent: %v", sent)
		}
		var back []*delivery.Job
		for _, p := range f.outboxes[0].puts {
			want, due := delivery.ReasonHours, began.Add(14*time.Hour+3*time.Second)
			switch p.job.Zone {
			case night:
				due = began.Add(11 * time.Hour)
			case nil:
				want, due = delivery.ReasonNoZone, began.Add(time.Hour)
			}
			if p.to.Kind != delivery.ToTimer || p.to.Reason != want || p.to.Due.Sub(due).Abs() > time.Second {
				t.Errorf("%s in %v: %+v, want %s until %s", p.job.ID, p.job.Zone, p.to, want, due)
			}
			if p.job.Zone == closing {
				back = append(back, p.job)
			}
		}
		if len(back) != 35-sent[closing] {
			t.Fatalf("%d of %d came to timers", len(back), 35-sent[closing])
		}
		// The hours are extended, and there is a zone for jobs without one, while they wait: those that are looked at now are sent.
		again := func(zone *time.Location, why delivery.Reason, n int) []*delivery.Job {
			list := jobs(newPartition("timer/"+string(why)), delivery.FromTimer, "c", 0, n)
			for _, j := range list {
				j.Zone, j.Reason, j.Due = zone, string(why), time.Now().Add(50*time.Minute)
			}
			return list
		}
		f.offer(t, again(nil, delivery.ReasonNoZone, 1))
		if to := f.outboxes[0].puts[len(f.outboxes[0].puts)-1].to; to.Reason != delivery.ReasonNoZone || time.Until(to.Due) != time.Hour {
			t.Errorf("a job without a zone, looked at again: %+v", to)
		}
		before := len(f.receiver.history())
		c.Local, c.Zone = localHours(t, 10*60, 22*60), day
		f.book.set(c)
		time.Sleep(time.Second)
		f.offer(t, again(closing, delivery.ReasonHours, len(back)))
		f.offer(t, again(nil, delivery.ReasonNoZone, 1))
		time.Sleep(5 * time.Second)
		exactly(t, len(f.receiver.history())-before, len(back)+1, "sent after a change of the hours")
	})
}

// TestAYearOfZones: jobs of twelve zones come at any time of a year, wait in timers and queues, and are each sent within their hours, at the first chance
// and once, over both changes of summer time.
func TestAYearOfZones(t *testing.T) {
	testservices.Simulation(t)
	c := campaign("c", 1000)
	c.Local = localHours(t, 10*60, 20*60)
	var zones []*time.Location
	for _, name := range []string{
		"Europe/Kaliningrad", "Europe/Moscow", "Asia/Yekaterinburg", "Asia/Vladivostok", "Asia/Kamchatka", "Europe/Berlin", "America/New_York",
		"America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Kiritimati",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		p, draw := f.daemons[0], rand.New(rand.NewPCG(1, 2))
		time.Sleep(time.Second)
		src := newPartition("in/0")
		decide := func(j *delivery.Job, at time.Time) placement {
			to, err := inTurn(context.Background(), p, func(now instant) placement {
				now.wall = at
				return p.decide(j, now)
			})
			if err != nil {
				t.Fatal(err)
			}
			return to
		}
		for read := begin; read.Before(begin.AddDate(1, 0, 0)); read = read.Add(time.Duration(draw.Int64N(int64(14 * time.Hour)))) {
			for _, zone := range zones {
				j := jobs(src, delivery.FromIngress, "c", 0, 1)[0]
				j.Zone, j.FirstRead, j.ReadAt = zone, read, read
				now, sent := read, time.Time{}
				for looks := 0; sent.IsZero(); looks++ {
					to := decide(j, now)
					switch wait := to.Due.Sub(now); {
					case looks > 200:
						t.Fatalf("a job of %s, read at %s, still waits at %s", zone, read, now)
					case to.where == queued:
						if sent = now.Add(time.Duration(draw.Int64N(int64(3 * time.Hour)))); c.Opens(j, sent).After(sent) { // its slot comes too late
							now, sent = sent, time.Time{}
						}
					case to.where == delayed && wait > 0 && wait < 5*time.Second:
						now = to.Due
					case to.where == moved && to.Kind == delivery.ToTimer && to.Reason == delivery.ReasonHours && wait > 0:
						j.From, j.Reason, j.Due = delivery.FromTimer, string(to.Reason), to.Due
						if now = to.Due; wait > 6*time.Hour {
							now = now.Add(6*time.Hour - wait) // the longest timer
						} else if draw.IntN(2) == 0 {
							now = now.Add(-wait / 2)
						}
						j.ReadAt = now
					default:
						t.Fatalf("a job of %s, read at %s, at %s: %+v", zone, read, now, to)
					}
				}
				if clock := sent.In(zone); clock.Hour() < 10 || clock.Hour() >= 20 {
					t.Errorf("a job of %s is sent at %s", zone, clock)
				}
				atMost(t, sent.Sub(read), 21*time.Hour, "the wait of a job of %s, read at %s", zone, read.In(zone))
			}
		}
	})
}
