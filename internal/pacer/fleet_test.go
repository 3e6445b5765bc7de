package pacer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// talk passes answers between the daemons once a second, as the exchange of progress does, until the returned function is
// called.
func (f *fleet) talk() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		asked := make([][]string, len(f.daemons))
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			asked = f.exchange(asked)
		}
	}()
	return func() { close(end); <-ended }
}

// exchange lets each daemon hear the others; it returns what each is asked next.
func (f *fleet) exchange(asked [][]string) (next [][]string) {
	all := make([]delivery.Answers, len(f.daemons))
	troubles := make([][]delivery.Trouble, len(f.daemons))
	for i, d := range f.daemons {
		all[i], _ = d.Answers(context.Background(), asked[i])
		troubles[i], _ = d.Troubles(context.Background())
	}
	next = make([][]string, len(f.daemons))
	for i, d := range f.daemons {
		e := delivery.FleetAnswers{
			Works: map[string]time.Time{}, Taken: map[string]time.Time{}, Untried: map[string]time.Time{}, Refused: map[string]time.Time{},
		}
		for o, a := range all {
			if o == i {
				continue
			}
			for id, at := range a.Works {
				e.Works[id] = at
			}
			for id, at := range a.Taken {
				e.Taken[id] = at
			}
			for id, at := range a.Untried {
				e.Untried[id] = at
			}
			for _, trouble := range troubles[o] {
				if trouble.Kind == delivery.TroubleRefused {
					e.Refused[trouble.Campaign] = trouble.Since
				}
			}
			next[i] = append(next[i], a.Asks...)
		}
		d.SetFleetAnswers(e)
	}
	return next
}

// A sink that fails what one daemon has, and takes what another has, has no outage: on the first only the campaigns are
// probed, and no attempt is used up, and the other hardly notices.
func TestWhatFailsHereAloneClosesNoGate(t *testing.T) {
	for name, tc := range map[string]struct {
		campaigns []string
		answer    delivery.Result
	}{
		"one campaign, unreachable": {[]string{"bad"}, delivery.Result{Class: delivery.Unreachable}},
		"several campaigns":         {[]string{"bad", "worse"}, delivery.Result{Class: delivery.Temporary}},
		"credentials":               {[]string{"bad"}, delivery.Result{Class: delivery.Misconfigured, Status: 401}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(campaign("bad", 100), campaign("worse", 100), campaign("good", 100))
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(2, uniform(3, 500*time.Microsecond, 0), b, nil)
				defer f.stop()
				defer f.talk()()
				f.receiver.setAnswer(func(daemon int, _ *delivery.Job) delivery.Result {
					if daemon == 0 {
						return tc.answer
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				for _, id := range tc.campaigns {
					f.offer(t, jobs(newPartition("lane/"+id), delivery.FromLane, id, 0, 200))
				}
				good := f.share(t, "good", 2000, 1)
				time.Sleep(21 * time.Second)
				if n := delivered(good); n < 1800 {
					t.Errorf("%d of 2000 others delivered", n)
				}
				for _, id := range tc.campaigns {
					if n := f.count(id); n > 80 {
						t.Errorf("%s: %d tried in 21 s, want 0.2 s of its rate, and about one a second", id, n)
					}
				}
				if n := f.dead(delivery.ReasonAttemptsExhausted); n != 0 {
					t.Errorf("%d dead letters", n)
				}
			})
		})
	}
}

// What other daemons have seen is soon out of date: an outage closes the gate although they took jobs just before.
func TestAnOutageAfterNewsFromElsewhere(t *testing.T) {
	b := newBook(campaign("bad", 100), campaign("good", 100))
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(2, uniform(3, 500*time.Microsecond, 0), b, nil)
		defer f.stop()
		defer f.talk()()
		f.receiver.setAnswer(func(daemon int, _ *delivery.Job) delivery.Result {
			if daemon == 0 {
				return delivery.Result{Class: delivery.Unreachable}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		f.offer(t, jobs(newPartition("lane/bad"), delivery.FromLane, "bad", 0, 200))
		f.share(t, "good", 2000, 1)
		time.Sleep(10 * time.Second)
		f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Unreachable} })
		time.Sleep(10 * time.Second)
		before := len(f.receiver.history())
		time.Sleep(10 * time.Second)
		if n := len(f.receiver.history()) - before; n > 12 {
			t.Errorf("%d calls in 10 s of a sink that does not work", n)
		}
		f.receiver.setAnswer(nil)
		time.Sleep(20 * time.Second)
		if n := f.count("good"); n < 2000 {
			t.Errorf("good: %d of 2000 sent", n)
		}
	})
}

// Refusals are held together: a success elsewhere ends a row, and daemons follow one that holds the campaign.
func TestRefusalsAreCountedByTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(2, uniform(3, 500*time.Microsecond, 0), newBook(campaign("mixed", 20), campaign("c", 20)), nil)
		defer f.stop()
		defer f.talk()()
		f.receiver.setAnswer(func(daemon int, j *delivery.Job) delivery.Result {
			if daemon == 0 || j.Campaign == "c" {
				return delivery.Result{Class: delivery.Permanent}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		f.share(t, "mixed", 240, 0, 1)
		f.share(t, "c", 60, 0)
		time.Sleep(5 * time.Second)
		f.share(t, "c", 50, 1)
		time.Sleep(9 * time.Second)
		if n := f.dead(delivery.ReasonRefused); n < 120+heldRefusals || n > 120+heldRefusals+heldRefusals/2 {
			t.Errorf("%d dead letters, want 120 of the one and a few more than %d of the other", n, heldRefusals)
		}
	})
}
