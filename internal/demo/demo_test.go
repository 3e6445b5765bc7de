package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/testservices"
)

// runDemo runs a short demo and returns its report and what it wrote. On a machine that is too busy to show anything in
// that time, it runs longer ones. The race detector makes it as slow, and sees enough in less.
func runDemo(t *testing.T, options Options) (report *Report, stdout, stderr string) {
	t.Helper()
	enough := 1000
	if testservices.Raced {
		enough = 300
	}
	for options.Duration = minDuration; ; options.Duration *= 3 {
		report, stdout, stderr = runDemoOnce(t, options)
		delivered, idle := 0, false
		for _, c := range report.Campaigns {
			delivered += c.Delivered
			idle = idle || c.Delivered == 0
		}
		if delivered >= enough && !idle || options.Duration > 10*minDuration {
			return report, stdout, stderr
		}
	}
}

func runDemoOnce(t *testing.T, options Options) (report *Report, stdout, stderr string) {
	t.Helper()
	var out, log lockedBuffer
	options.Stdout, options.Stderr = &out, &log
	report, err := Run(t.Context(), options)
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, log.String())
	}
	for _, c := range report.Campaigns {
		if c.Published == 0 || c.Published != c.Delivered+c.Queued+c.Dead+c.Expired+c.Cancelled+c.Lost {
			t.Errorf("campaign %s does not add up: %+v", c.ID, c)
		}
	}
	return report, out.String(), log.String()
}

// lockedBuffer is written by daemons' logs and the demo itself.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func isBusy(warning string) bool {
	return strings.HasSuffix(warning, "a machine that is busy costs slots")
}

func TestDemoKeepsItsPromises(t *testing.T) {
	t.Parallel()
	report, stdout, stderr := runDemo(t, Options{JSON: true})
	if problems := report.Problems; len(problems) > 0 {
		t.Errorf("problems: %s\n%s", strings.Join(problems, "\n"), stderr)
	}
	if warnings := slices.DeleteFunc(slices.Clone(report.Warnings), isBusy); len(warnings) > 0 {
		t.Errorf("warnings: %s", strings.Join(warnings, "\n"))
	}
	if stdout != "" || len(report.Campaigns) < 5 {
		t.Fatalf("%d campaigns, and beside the report: %q", len(report.Campaigns), stdout)
	}
	queued, requeued, retried := 0, 0, 0
	for _, c := range report.Campaigns {
		queued, requeued, retried = queued+c.Queued, requeued+c.Requeued, retried+c.Retried
		if c.MaxHops > 1 {
			t.Errorf("campaign %s: a job was re-enqueued %d times", c.ID, c.MaxHops)
		}
		if c.Delivered == 0 {
			t.Errorf("campaign %s delivered nothing", c.ID)
		}
	}
	if !slices.ContainsFunc(report.Warnings, isBusy) && (queued == 0 || requeued == 0 || retried == 0) {
		t.Errorf("the demo shows too little: %d queued, %d requeued, %d retried", queued, requeued, retried)
	}
	t.Log(report.Text())
}

// swallowing claims to deliver, and drops one job in a hundred.
type swallowing struct {
	pacer.Sinks
	count *atomic.Int64
}

func (s swallowing) Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result {
	if s.count.Add(1)%100 == 0 {
		return delivery.Result{Class: delivery.Delivered, Status: 200}
	}
	return s.Sinks.Deliver(ctx, id, job)
}

func TestDemoSeesASinkThatSwallowsJobs(t *testing.T) {
	t.Parallel()
	testservices.Simulation(t)
	var count atomic.Int64
	report, _, _ := runDemo(t, Options{JSON: true, WrapSinks: func(inner pacer.Sinks) pacer.Sinks {
		return swallowing{inner, &count}
	}})
	lost := 0
	for _, c := range report.Campaigns {
		lost += c.Lost
	}
	if report.OK || lost == 0 {
		t.Fatalf("ok %v with %d jobs lost", report.OK, lost)
	}
}

// doubling grants twice what the store granted, at twice the rate.
type doubling struct{ pacer.Limiter }

func (d doubling) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	reply, err := d.Limiter.Take(ctx, asks)
	for i := range reply.Items {
		g := &reply.Items[i]
		if doubled := min(2*g.Units, asks[i].Want); doubled > g.Units {
			g.Units = doubled
			g.Rate.N *= 2
		}
	}
	return reply, err
}

func TestDemoSeesALimiterThatGrantsDouble(t *testing.T) {
	t.Parallel()
	testservices.Simulation(t)
	report, _, _ := runDemo(t, Options{JSON: true, WrapLimiter: func(inner pacer.Limiter) pacer.Limiter {
		return doubling{inner}
	}})
	problems := strings.Join(report.Problems, "\n")
	if report.OK || !strings.Contains(problems, "more than send_rate allows") && !strings.Contains(problems, "above its limit") {
		t.Fatalf("ok %v, problems: %s", report.OK, problems)
	}
}

func TestDemoFindsAnotherPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	st := &environment{}
	got := st.freeListen(taken.Addr().String())
	if got == "" || got == taken.Addr().String() || !strings.Contains(strings.Join(st.notes, "\n"), "using "+got) {
		t.Fatalf("listens on %q, says %q", got, st.notes)
	}
	if got := st.freeListen(""); got != "" {
		t.Fatalf("listens on %q though nobody asked", got)
	}
}

func TestDemoRefusesAnOddDuration(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, time.Second, 24 * time.Hour} {
		_, err := Run(t.Context(), Options{Duration: d, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
		if !errors.As(err, &config.UsageError{}) || !strings.Contains(err.Error(), "--duration") {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// A demo that is interrupted before its first job, as by Ctrl-C at once, reports that nothing was lost.
func TestDemoEndsEarly(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 250 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		report, err := Run(ctx, Options{Stdout: &lockedBuffer{}, Stderr: &lockedBuffer{}, JSON: true})
		cancel()
		if err != nil || !report.OK || len(report.Campaigns) == 0 {
			t.Errorf("interrupted after %s: %v, %+v", after, err, report)
		}
	}
}

func TestScenePublishesMoreThanCanBeSent(t *testing.T) {
	s := newScenario(20 * time.Second)
	published := make(map[string]int)
	last := time.Duration(-1)
	for from, to := 0, firstWaves; to <= waves; from, to = to, to+1 {
		if at := s.waveAt(to); at <= last || at > s.duration*95/100 {
			t.Errorf("a wave at %s after one at %s", at, last)
		}
		last = s.waveAt(to)
		for r := range s.records(from, to) {
			id := r.Header(delivery.HeaderCampaign)
			if r.Header(delivery.HeaderJobID) != jobID(id, published[id]) {
				t.Fatalf("%s: %s comes after %d others", id, r.Header(delivery.HeaderJobID), published[id])
			}
			published[id]++
		}
		for i := range s.campaigns {
			if c := &s.campaigns[i]; published[c.id] != c.published(to) {
				t.Fatalf("%s: %d of %d jobs are published after %d waves", c.id, published[c.id], c.published(to), to)
			}
		}
	}
	for i := range s.campaigns {
		c := &s.campaigns[i]
		if published[c.id] != c.jobs || float64(c.jobs) < 1.1*s.most(c) {
			t.Errorf("%s: %d of %d jobs are published, %.0f can be sent", c.id, published[c.id], c.jobs, s.most(c))
		}
	}
}

func TestPlainViewPrintsALineNowAndThen(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out}
	for ms := 250; ms <= 5000; ms += 250 {
		v.update(frame{
			elapsed: time.Duration(ms) * time.Millisecond, duration: 5 * time.Second,
			rows: []frameRow{{campaign: "a", achieved: 10, state: "active"}, {campaign: "b", state: "paused"}},
		})
	}
	want := " 0.2s  a 10/s  b paused\n 2.0s  a 10/s  b paused\n 4.0s  a 10/s  b paused\n 5.0s  a 10/s  b paused\n"
	if got := out.String(); got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
}

func TestTableViewDraws(t *testing.T) {
	var out bytes.Buffer
	v, _ := newView(&Options{Terminal: true, Stdout: &out}, newScenario(20*time.Second))
	v.say("first")
	if !strings.Contains(out.String(), "starting") {
		t.Fatal("nothing to see before the first picture")
	}
	drawn := v.drawn
	v.update(frame{elapsed: 10 * time.Second, duration: 20 * time.Second, rows: []frameRow{
		{campaign: "steady", rate: 300, achieved: 299.6, delivered: 1234, waiting: 99, state: "paused", about: "raised"},
	}})
	out.Reset()
	v.say("steady: raised")
	for _, want := range []string{"steady", "300", "1234", "99", "paused", "10.0 / 20 s", "steady: raised", fmt.Sprintf("\x1b[%dA", drawn+3)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	for range 2 * maxEvents {
		v.say("again")
	}
	if got := strings.Count(v.picture(), "  again\n"); got != maxEvents {
		t.Errorf("%d events are shown", got)
	}
}
