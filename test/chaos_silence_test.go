package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/console/view"
)

const (
	// stillAfter is how long a campaign with jobs may have no request before the case needs an explanation. Whether its jobs may be sent
	// is not known here: what comes later, or still waits in ingress or a lane, was waiting.
	stillAfter = 20 * time.Second
	// saidAfter is when there has to be an answer: pacer itself takes nothing for a stall before half a minute.
	saidAfter = 40 * time.Second
	askEvery  = 5 * time.Second
)

// telling is the required sign of a case's fault: words of a daemon's WARN or ERROR line, or a metric that is above 0 on a daemon at the
// end. Requests of people, daemons that come, go or are killed, and harmless faults need no sign.
type telling struct{ line, metric string }

// told expects what has to tell of the case's fault, within seconds on a busy machine. The daemons still run.
func (c *chaos) told() {
	c.t.Helper()
	want := c.tells
	for end := time.Now().Add(askEvery); want.metric != "" && metricOf(c.up, want.metric) == 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if want.line != "" && !slices.ContainsFunc(c.silence.daemons, func(d *daemon) bool {
		return d.log.lines("level=WARN", want.line)+d.log.lines("level=ERROR", want.line) > 0
	}) {
		c.t.Errorf("no daemon says that %q", want.line)
	}
	if want.metric != "" && !slices.ContainsFunc(c.up, func(d *daemon) bool { return d.metric(want.metric) > 0 }) {
		c.t.Errorf("%s is 0 on all daemons", want.metric)
	}
}

// silence watches that no campaign stands still without a line of a daemon's log, of level WARN or ERROR, that tells of the
// case's fault or names the campaign, or an answer of `pacer explain`. It only collects what it sees: the verdict tells which
// campaigns had jobs that waited.
type silence struct {
	c      *chaos
	binary string
	done   chan struct{}
	end    func()

	mu        sync.Mutex // guards what follows
	published map[string]int
	daemons   []*daemon
	found     []stillness
}

// stillness is a campaign that stood still without an explanation.
type stillness struct {
	campaign string
	from     time.Time
	accepted int // jobs, when it was found
}

// stand is what is known of one campaign.
type stand struct {
	requests int
	since    time.Time // of the last change
	asked    time.Time
	told     bool
}

// watch begins to watch, in the full form.
func (c *chaos) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	w := &silence{c: c, binary: c.binary, done: make(chan struct{}), published: map[string]int{bystanderID: c.bystander.jobs}}
	w.end = func() { cancel(); <-w.done }
	c.silence = w
	if !c.full {
		close(w.done)
		return
	}
	go w.run(ctx)
}

// publishes notes that jobs are published.
func (w *silence) publishes(jobs []job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		w.published[j.campaign]++
	}
}

// listens notes a daemon whose log counts.
func (w *silence) listens(d *daemon) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.daemons = append(w.daemons, d)
}

func (w *silence) run(ctx context.Context) {
	defer close(w.done)
	stands := map[string]*stand{}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		var ids []string
		for id := range w.published {
			ids = append(ids, id)
		}
		w.mu.Unlock()
		slices.Sort(ids)
		asked := 0
		for _, id := range ids {
			s := stands[id]
			if s == nil {
				s = &stand{since: time.Now()}
				stands[id] = s
			}
			if w.look(ctx, id, s, asked) {
				asked++
			}
		}
	}
}

// look looks at one campaign, and reports whether it has asked. A tick asks of a few only: each answer is a process.
func (w *silence) look(ctx context.Context, id string, s *stand, asked int) bool {
	requests, accepted := w.c.sentOf(id)
	w.mu.Lock()
	unsent := w.published[id] - accepted
	daemons := len(w.daemons)
	w.mu.Unlock()
	now := time.Now()
	if requests != s.requests || unsent <= 0 || daemons == 0 {
		*s = stand{requests: requests, since: now}
		return false
	}
	still := now.Sub(s.since)
	if s.told || still < stillAfter || now.Sub(s.asked) < askEvery || asked >= 3 {
		return false
	}
	s.asked = now
	if s.told = w.said(id, s.since) || w.explained(ctx, id); !s.told && still >= saidAfter {
		s.told = true
		w.mu.Lock()
		w.found = append(w.found, stillness{campaign: id, from: s.since, accepted: accepted})
		w.mu.Unlock()
	}
	return true
}

// said reports whether a daemon has logged a warning since then that tells why a campaign stands still.
func (w *silence) said(campaign string, since time.Time) bool {
	words := w.c.tells.line
	w.mu.Lock()
	daemons := slices.Clone(w.daemons)
	w.mu.Unlock()
	for _, d := range daemons {
		for line := range strings.Lines(d.log.String()) {
			if !strings.Contains(line, "level=WARN") && !strings.Contains(line, "level=ERROR") {
				continue
			}
			if !strings.Contains(line, "campaign="+campaign) && (words == "" || !strings.Contains(line, words)) {
				continue
			}
			stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && at.After(since) {
				return true
			}
		}
	}
	return false
}

// explained reports whether `pacer explain` says what holds the campaign.
func (w *silence) explained(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.binary, "explain", id, "--json", "--config", w.c.config())
	cmd.Env = environment()
	out, err := cmd.Output()
	var answer view.Campaign
	return err == nil && json.Unmarshal(out, &answer) == nil && answer.Held != nil
}

// unexplained are the campaigns with waiting jobs that stood still without an explanation.
func (w *silence) unexplained(waiting map[string]bool) (list []string) {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.found {
		if _, accepted := w.c.sentOf(s.campaign); accepted > s.accepted || waiting[s.campaign] {
			list = append(list, fmt.Sprintf("%s from %s on", s.campaign, s.from.UTC().Format(time.RFC3339)))
		}
	}
	return list
}

// sentOf counts the requests and the accepted jobs of a campaign, at all receivers.
func (c *chaos) sentOf(id string) (requests, accepted int) {
	for _, r := range c.receivers() {
		requests += r.count(id)
		n, _ := r.accepted(id)
		accepted += n
	}
	return requests, accepted
}

// receivers are all that jobs of the case may go to.
func (c *chaos) receivers() []*receiver { return []*receiver{c.receiver, c.bystander.receiver} }
