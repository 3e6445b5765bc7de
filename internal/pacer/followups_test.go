package pacer

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestFollowUps: each job leaves once, the ceiling bounds the calls, campaigns that may send take turns, and the counts are right.
func TestFollowUps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.SampledFrom([]int{1, 7, 100, 5000}).Draw(t, "a second")
		f := newFollowUps(perSecond)
		queues := map[string]*queue{"a": newQueue("a"), "b": newQueue("b"), "c": newQueue("c")}
		here := map[*delivery.Job]bool{}
		var sent []int64
		now, made := int64(1_000_000), 0
		next := func() *delivery.Job {
			made++
			j := &delivery.Job{ID: fmt.Sprint(made), Campaign: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "campaign")}
			j.Size = int64(made)
			return j
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				j := next()
				f.push(queues[j.Campaign], j)
				here[j] = true
			},
			"take": func(t *rapid.T) {
				may := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "only")
				before := f.next
				j := f.nextJob(now, func(q *queue) bool { return may == "" || q.id == may })
				switch {
				case j == nil:
					for other := range here {
						if before <= now && (may == "" || other.Campaign == may) {
							t.Fatalf("%s was not taken", other.ID)
						}
					}
				case !here[j] || may != "" && j.Campaign != may:
					t.Fatalf("%s was taken", j.ID)
				default:
					delete(here, j)
					sent = append(sent, now)
				}
			},
			"drop": func(t *rapid.T) {
				c := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of")
				for _, j := range takeOut(&f, func(_ int64, j *delivery.Job) bool { return j.Campaign == c }) {
					delete(here, j)
				}
			},
			"later": func(t *rapid.T) { now += rapid.Int64Range(1, 700_000).Draw(t, "by") },
			"": func(t *rapid.T) {
				size := int64(0)
				for j := range here {
					size += j.Size
				}
				if f.ready != len(here) || f.size != size {
					t.Fatalf("%d ready, %d bytes; want %d, %d", f.ready, f.size, len(here), size)
				}
				for from := range sent {
					for to := from; to < len(sent); to++ {
						if allowed := int64(perSecond)*(sent[to]-sent[from]+followUpSlack.Microseconds())/1_000_000 + 2; int64(to-from+1) > allowed {
							t.Fatalf("%d calls in %d µs", to-from+1, sent[to]-sent[from])
						}
					}
				}
			},
		})
	})
}

// TestFollowUpsTakeTurns: a campaign with many jobs does not delay another's.
func TestFollowUpsTakeTurns(t *testing.T) {
	f := newFollowUps(1000)
	many, few := newQueue("many"), newQueue("few")
	for range 500 {
		f.push(many, &delivery.Job{Campaign: "many"})
	}
	now := int64(0)
	f.push(few, &delivery.Job{Campaign: "few"})
	f.push(few, &delivery.Job{Campaign: "few"})
	var order string
	for range 5 {
		now += 1000
		order += f.nextJob(now, func(*queue) bool { return true }).Campaign + " "
	}
	if order != "many few many few many " {
		t.Error(order)
	}
}

// TestBook: jobs in timers are told to come back one behind the other when there are more than the ceiling allows, and at their
// own time when there are not.
func TestBook(t *testing.T) {
	f := newFollowUps(10)
	a, b := newQueue("a"), newQueue("b")
	const second = int64(1_000_000)
	exactly(t, f.book(a, 5*second, false, 0), 5*second, "its own time")
	var last int64
	for i := range 100 {
		at := f.book(a, 0, true, 0)
		if at <= last || at > int64(i+2)*second/10 {
			t.Fatalf("job %d: %d after %d", i, at, last)
		}
		last = at
	}
	atMost(t, f.book(b, 0, true, 0), second/2, "the first of another campaign")
	if at := f.book(a, second, false, 0); at <= last {
		t.Errorf("one that would pass the others: %d", at)
	}
	exactly(t, f.book(a, 60*second, false, 0), 60*second, "one whose time is behind them")
	if f.forget(20 * second); len(f.booked) != 0 && f.booked["b"] != 0 {
		t.Errorf("remembered: %d", len(f.booked))
	}
	for range 100_000 {
		last = f.book(a, 0, true, 0)
	}
	atMost(t, last, maxBooked.Microseconds(), "the last of many")
}
