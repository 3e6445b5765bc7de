//go:build e2e

package test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// backlogsRate is the sum of the rates of campaigns with a backlog, in jobs a second.
const backlogsRate = 5000

// measureBacklogs: what it costs, and whether anybody starves, when 1 to 10,000 campaigns send from lanes.
func measureBacklogs(t *testing.T, table *speedTable) {
	for _, n := range scaleCampaigns {
		t.Run(fmt.Sprint(n), func(t *testing.T) { measureBacklogsOf(t, table, n) })
	}
}

func measureBacklogsOf(t *testing.T, table *speedTable, n int) {
	const settle = 5 * time.Second
	length := scaledTime(t, 30*time.Second)
	ids, perSecond := numbered(n), float64(backlogsRate)/float64(n)
	rate := func(int) float64 { return perSecond }
	s, sent := newLaneStack(t, 256)
	each := int(perSecond*(settle+length+5*time.Second).Seconds()) + 1
	d := s.waiting(ids, each, rate)
	time.Sleep(2 * time.Second)
	idle := d.idle(3 * time.Second)
	from := s.resume(settle)
	time.Sleep(time.Until(from))
	before, reads := d.spent(), d.laneReads()
	time.Sleep(time.Until(from.Add(length)))
	used, now := d.spent().since(before).less(idle, length.Seconds()), d.laneReads()
	memory := d.peakRSS()
	time.Sleep(time.Second) // for what is still being written down
	sent.read()
	shares := sharesOf(sent, ids, rate, from, length)
	jobs := 0
	for _, id := range ids {
		jobs += sent.in(id, from, from.Add(length))
	}
	row := fmt.Sprintf("backlogs-%d-", n)
	table.add(t, row+"cpu", speedSample{
		Figure: used.over(float64(max(1, jobs))).cpu.Seconds() * 1e6,
		Note:   fmt.Sprintf("%.1f %% of the rate of all", 100*float64(jobs)/(backlogsRate*length.Seconds())),
	})
	table.add(t, row+"reads", speedSample{Figure: (now.read - reads.read) / max(1, now.sent-reads.sent)})
	table.add(t, row+"memory", speedSample{Figure: float64(memory)})
	table.add(t, row+"least", speedSample{Figure: 100 * slices.Min(shares), Note: fmt.Sprintf("median %.1f %%", 100*middle(shares))})
	sent.notAgain(ids...)
}

// sharesOf is what part of its rate each campaign got in a stretch of time, which may cut one job off.
func sharesOf(sent *noted, ids []string, rate func(i int) float64, from time.Time, length time.Duration) []float64 {
	shares := make([]float64, len(ids))
	for i, id := range ids {
		shares[i] = min(1, float64(sent.in(id, from, from.Add(length))+1)/(rate(i)*length.Seconds()))
	}
	return shares
}

// measureAmong: a fast campaign and ten thousand slow ones, all with jobs in lanes.
func measureAmong(t *testing.T, table *speedTable) {
	const settle, fast = 5 * time.Second, 5000
	length := scaledTime(t, 30*time.Second)
	slow := numbered(scaled(t, 10_000))
	one := func(int) float64 { return 1 }
	s, sent := newLaneStack(t, 256)
	each := int((settle + length).Seconds()) + 10
	s.campaigns("noted", "paused", []string{"fast"}, func(int) float64 { return fast })
	d := s.waiting(slow, each, one)
	s.publishOf("fast", fast*each, nil)
	all := int64(each * (len(slow) + fast))
	s.awaitLanes(10*time.Minute, all)
	s.await(time.Minute, "the lanes to be read", func() bool { return d.laneReads().read >= float64(all) })
	from := s.resume(settle)
	time.Sleep(time.Until(from))
	before, reads := d.spent(), d.laneReads()
	time.Sleep(time.Until(from.Add(length)))
	used, now := d.spent().since(before), d.laneReads()
	time.Sleep(time.Second) // for what is still being written down
	sent.read()
	table.add(t, "among-fast", speedSample{
		Figure: float64(sent.in("fast", from, from.Add(length))) / length.Seconds(), Yardstick: fast,
		Note: fmt.Sprintf("%.2f records read from lanes a job, %.0f %% of a processor, %d MiB", (now.read-reads.read)/max(1, now.sent-reads.sent),
			100*used.cpu.Seconds()/length.Seconds(), d.peakRSS()),
	})
	sum := 0
	for _, id := range slow {
		sum += sent.in(id, from, from.Add(length))
	}
	table.add(t, "among-slow", speedSample{Figure: float64(sum) / length.Seconds(), Yardstick: float64(len(slow))})
	shares := sharesOf(sent, slow, one, from, length)
	below := 0
	for _, share := range shares {
		if share < 0.95 {
			below++
		}
	}
	table.add(t, "among-least", speedSample{
		Figure: 100 * slices.Min(shares), Yardstick: 100, Note: fmt.Sprintf("%d of %d below 95 %%", below, len(slow)),
	})
	sent.notAgain(append(slow, "fast")...)
}

// measureBeside: a campaign with a backlog sends on while ten thousand others get sixty jobs each, as fast as Kafka takes them.
func measureBeside(t *testing.T, table *speedTable) {
	const perSecond, each, before = 20, 60, 5 * time.Second
	many := numbered(scaled(t, 10_000))
	s, sent := newLaneStack(t, 256)
	s.campaigns("noted", "active", many, func(int) float64 { return 0.2 })
	s.waiting([]string{"steady"}, 3000, func(int) float64 { return perSecond })
	time.Sleep(time.Until(s.resume(before)))
	from := time.Now()
	s.publishTurns(many, 0, each)
	s.awaitLanes(2*time.Minute, int64(3000+len(many)*(each-2))) // a campaign keeps a job or two in memory
	to := time.Now()
	time.Sleep(time.Second) // for what is still being written down
	sent.read()
	table.add(t, "beside-steady", speedSample{Figure: float64(sent.in("steady", from, to)) / to.Sub(from).Seconds(), Yardstick: perSecond})
	table.add(t, "beside-taken", speedSample{Figure: to.Sub(from).Seconds()})
	sent.notAgain(append(many, "steady")...)
}

// plotBacklogs draws what the number of campaigns with a backlog costs.
func plotBacklogs(t *testing.T, table *speedTable) {
	t.Helper()
	for _, p := range []struct{ row, title, y string }{
		{"cpu", "Campaigns with a backlog, together 5,000/s: CPU of a job", "µs"},
		{"reads", "Campaigns with a backlog, together 5,000/s: records read from lanes", "a job"},
		{"memory", "Campaigns with a backlog, together 5,000/s: peak memory of a daemon", "MiB"},
	} {
		l := plotLine{name: "measured"}
		for i, n := range scaleCampaigns {
			if samples := table.samples[fmt.Sprintf("backlogs-%d-%s", n, p.row)]; len(samples) > 0 {
				l.at = append(l.at, [2]float64{float64(scaleCampaigns[i]), middleFigure(samples)})
			}
		}
		if len(l.at) == len(scaleCampaigns) {
			(&plot{title: p.title, x: "campaigns", y: p.y, logX: true, lines: []plotLine{l}}).write(t, "backlogs-"+p.row+".svg")
		}
	}
}

func middleFigure(samples []speedSample) float64 {
	var figures []float64
	for _, s := range samples {
		figures = append(figures, s.Figure)
	}
	return middle(figures)
}
