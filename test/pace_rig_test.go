//go:build e2e

package test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/test/recording"
)

const (
	pacePartitions = 12 // shared evenly by one, two, three, four, six or twelve daemons
	// paceLead is how many jobs are published ahead of those that are sent.
	paceLead = 7_000 * pacePartitions
	// paceWarmUp is the time from the end of publishing the lead to the beginning of the window.
	paceWarmUp = time.Second
	// paceReserve is how much more is published than can be sent until the window ends.
	paceReserve = 1.05
	// paceSlack is how long the publishing of a part of the jobs may take, while others are sent.
	paceSlack = 2 * time.Second
	pacePulse = 20 * time.Millisecond
)

// paceRig is daemons of which each sends to a receiver and a file of its own, so that the sender of each job is known.
type paceRig struct {
	*stack
	began     time.Time
	up        []*daemon
	receivers []*receiver
	files     []*recording.File
	of        map[string]paceOwner // by campaign
}

// paceOwner is the run that a campaign belongs to, and its index there.
type paceOwner struct {
	run      *paceTrial
	campaign int
}

// paceTrial is one run of campaigns with one sink. Campaigns of the same rate are next to each other.
type paceTrial struct {
	paceRun
	sink    string                         // http or discard
	seconds int                            // of the window
	jobs    func(begins time.Duration) int // instead of need

	// during, if set, is called in the window. The run continues when it returns.
	during func() error
}

// newPaceRig starts daemons for the campaigns of these trials. No job of theirs goes to a lane, which only one daemon reads.
func newPaceRig(t *testing.T, daemons int, trials ...*paceTrial) *paceRig {
	t.Helper()
	p := &paceRig{began: time.Now(), of: map[string]paceOwner{}, stack: newStack(t, stackOptions{
		partitions: pacePartitions, sinks: "  noted: {type: discard}", settings: "pacing: {max_open_age: 1h}",
	})}
	for _, trial := range trials {
		var ids []string
		for i, l := range trial.loads {
			ids = append(ids, l.id)
			p.of[l.id] = paceOwner{trial, i}
		}
		p.campaigns(map[string]string{"http": "receiver", "discard": "noted"}[trial.sink], "active", ids, func(i int) float64 { return trial.loads[i].rate })
		if len(ids) == 1 { // of several, the fullest would keep a partition from the others
			p.sql(`UPDATE pacer.campaigns SET overflow = 'block' WHERE id = $1`, ids[0])
		}
		trial.daemons = daemons
	}
	for i := range daemons {
		r, file := newReceiver(t), filepath.Join(p.dir, fmt.Sprintf("sent-%d", i))
		p.receivers, p.files = append(p.receivers, r), append(p.files, recording.New(file))
		p.up = append(p.up, p.start(fmt.Sprintf("daemon-%d", i), "PACER_SINKS_RECEIVER_URL="+r.url, "PACER_SINKS_NOTED_RECORD="+file))
	}
	p.awaitWhole(daemons, p.up...)
	return p
}

// now is the clock of the measurement.
func (p *paceRig) now() time.Duration { return time.Since(p.began) }

// perform makes the runs one after the other, and collects what arrived after it has stopped the daemons.
func (p *paceRig) perform(trials ...*paceTrial) {
	p.t.Helper()
	for _, trial := range trials {
		before := p.everWritten("lanes") + p.everWritten("timers")
		p.send(trial)
		p.drain(trial)
		trial.requeued = p.everWritten("lanes") + p.everWritten("timers") - before
	}
	for _, d := range p.up {
		d.stop()
	}
	p.collect(trials)
}

// pacePass measures what daemons use in the window of a run.
type pacePass struct {
	p       *paceRig
	trial   *paceTrial
	begins  time.Time // zero: not known yet
	cpu     time.Duration
	scripts float64
	acted   chan error
}

// look begins the window when it is due, and reports whether it has ended.
func (w *pacePass) look() (ended bool) {
	w.p.t.Helper()
	run := &w.trial.paceRun
	switch {
	case w.begins.IsZero() || time.Now().Before(w.begins):
	case w.acted == nil:
		w.cpu, w.scripts, w.acted = w.used(), w.p.scripts(), make(chan error, 1)
		run.window.From = w.p.now()
		run.window.To = run.window.From + time.Duration(w.trial.seconds)*time.Second
		go func() {
			if w.trial.during == nil {
				w.acted <- nil
				return
			}
			w.acted <- w.trial.during()
		}()
	case w.p.now() >= run.window.To:
		// The end was noticed a little late.
		share := float64(run.window.Length()) / float64(w.p.now()-run.window.From)
		run.cpu = time.Duration(share * float64(w.used()-w.cpu))
		run.scripts = share * (w.p.scripts() - w.scripts)
		for _, d := range w.p.up {
			run.mib = max(run.mib, float64(d.peakRSS()))
		}
		noError(w.p.t, <-w.acted)
		return true
	}
	return false
}

func (w *pacePass) used() (sum time.Duration) {
	for _, d := range w.p.up {
		sum += d.processor()
	}
	return sum
}

// scripts is the number of script calls in Redis, from all clients.
func (s *stack) scripts() (sum float64) {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.redis})
	defer func() { _ = client.Close() }()
	stats, err := client.InfoMap(s.t.Context(), "commandstats").Result()
	noError(s.t, err)
	for command, text := range stats["Commandstats"] {
		var calls float64
		if strings.HasPrefix(command, "cmdstat_eval") {
			_, err := fmt.Sscanf(text, "calls=%g", &calls)
			noError(s.t, err)
			sum += calls
		}
	}
	return sum
}

// send publishes jobs, the lead at once and the rest at the sending rate, until there are enough and the window has ended. Campaigns of
// one rate take turns, job by job; those of different rates follow each other, so that each is spread evenly over the partitions.
func (p *paceRig) send(trial *paceTrial) {
	p.t.Helper()
	began, published, perSecond := time.Now(), 0, 0.0
	pass := &pacePass{p: p, trial: trial}
	primed := func() { pass.begins = time.Now().Add(paceWarmUp) }
	for first, last := 0, 0; first < len(trial.loads); first = last {
		rate := trial.loads[first].rate
		for last < len(trial.loads) && trial.loads[last].rate == rate {
			last++
		}
		group := trial.loads[first:last]
		perSecond += rate * float64(len(group))
		for n := 0; ; {
			begins := cmp.Or(pass.begins, time.Now().Add(paceWarmUp)).Sub(began)
			if n >= trial.need(rate, begins) {
				break
			}
			turns := max(1, 12_000/len(group))
			if published >= paceLead {
				if pass.begins.IsZero() {
					primed()
				}
				turns = max(1, int(rate/10))
				time.Sleep(time.Until(began.Add(time.Duration(float64(published-paceLead) / perSecond * float64(time.Second)))))
				if float64(published) < perSecond*time.Since(began).Seconds() {
					p.t.Fatalf("only %d jobs could be published in %s, at most as many as were sent; use lower rates", published, time.Since(began))
				}
			}
			turns = min(turns, trial.need(rate, begins+paceSlack)-n)
			p.publish(turnsOf(group, n, turns))
			n, published = n+turns, published+turns*len(group)
			pass.look()
		}
	}
	if pass.begins.IsZero() {
		primed()
	}
	for !pass.look() {
		time.Sleep(pacePulse)
	}
}

// need returns how many jobs of a campaign last until the window's end, if that window begins so long after the first was published.
func (t *paceTrial) need(rate float64, begins time.Duration) int {
	if t.jobs != nil {
		return t.jobs(begins)
	}
	return int(paceReserve*rate*(begins+time.Duration(t.seconds)*time.Second).Seconds()) + 2
}

// turnsOf are n jobs of each campaign from a number on, which take turns.
func turnsOf(loads []paceLoad, first, n int) (jobs []job) {
	for i := range n {
		for c := range loads {
			jobs = append(jobs, job{campaign: loads[c].id, id: fmt.Sprintf("%s-%d", loads[c].id, first+i)})
		}
	}
	for c := range loads {
		loads[c].published += n
	}
	return jobs
}

// drain waits until every job has arrived, no further job arrives, or a timeout.
func (p *paceRig) drain(trial *paceTrial) {
	p.t.Helper()
	patience := 4 * time.Second
	for _, l := range trial.loads {
		patience = max(patience, time.Duration(3/l.rate*float64(time.Second)))
	}
	seen, quiet, end := 0, time.Now(), time.Now().Add(30*time.Second)
	for seen < trial.published() && time.Since(quiet) < patience && time.Now().Before(end) {
		time.Sleep(250 * time.Millisecond)
		p.readFiles()
		arrived := len(trial.events)
		if trial.sink == "http" {
			for _, r := range p.receivers {
				for _, l := range trial.loads {
					n, _ := r.accepted(l.id)
					arrived += n
				}
			}
		}
		if arrived > seen {
			seen, quiet = arrived, time.Now()
		}
	}
}

// readFiles adds what was recorded since the last call to the runs.
func (p *paceRig) readFiles() {
	p.t.Helper()
	for i, file := range p.files {
		noError(p.t, file.Next(func(at time.Time, campaign, id string) error {
			p.note(at.Sub(p.began.Round(0)), campaign, id, i) // wall clock against wall clock
			return nil
		}))
	}
}

// note adds one job that arrived to its run.
func (p *paceRig) note(at time.Duration, campaign, id string, daemon int) {
	p.t.Helper()
	owner, n := p.of[campaign], numberOf(p.t, id)
	if owner.run == nil || n >= owner.run.loads[owner.campaign].published {
		p.t.Fatalf("job %q of campaign %s arrived, which was never published", id, campaign)
	}
	owner.run.events = append(owner.run.events, paceEvent{at: at, campaign: owner.campaign, job: n, daemon: daemon})
}

// collect adds the jobs that arrived to every run, and counts those that have not arrived and wait in the broker.
func (p *paceRig) collect(trials []*paceTrial) {
	p.t.Helper()
	p.readFiles()
	for i, r := range p.receivers {
		for _, a := range r.arrivals("") {
			p.note(r.began.Sub(p.began)+time.Duration(a.at)*time.Microsecond, a.campaign, a.id, i)
		}
	}
	missing, arrived := 0, map[string]bool{}
	for _, trial := range trials {
		missing += trial.published() - len(trial.events)
		trial.sort()
	}
	if missing <= 0 {
		return
	}
	for _, trial := range trials {
		for _, e := range trial.events {
			arrived[fmt.Sprintf("%s-%d", trial.loads[e.campaign].id, e.job)] = true
		}
	}
	p.eachOpen(func(_ string, r delivery.Record) {
		id := r.Header(delivery.HeaderJobID)
		if owner := p.of[r.Header(delivery.HeaderCampaign)]; !arrived[id] {
			arrived[id] = true // a job may be in two places
			owner.run.loads[owner.campaign].waiting++
		}
	})
}
