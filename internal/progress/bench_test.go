package progress

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// BenchmarkFleet is one exchange of each of many daemons, which all have jobs of 1,000 campaigns. Beside the time of one
// round of exchanges, it reports what Redis does for it: processor time, and bytes in and out. A round is made every second,
// or less often with many campaigns (see exchangeAfter).
func BenchmarkFleet(b *testing.B) {
	for _, daemons := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("daemons=%d", daemons), func(b *testing.B) {
			server := testservices.FreshRedis(b)
			client := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer func() { _ = client.Close() }()
			fleet, exchange := newFleet(daemons, 1000), NewRedisExchange(client, "p.")
			round := func() {
				for i := range fleet {
					if _, err := exchange.Swap(b.Context(), strconv.Itoa(i), fleet[i].encode(), func(left []Left) []byte {
						parts, _ := decode(left)
						return new(merger).merge(parts).encode()
					}); err != nil {
						b.Fatal(err)
					}
				}
			}
			round()
			cpu, bytes := redisInfo(b, client, "used_cpu_user_main_thread:", "used_cpu_sys_main_thread:"), redisInfo(b, client, "total_net_input_bytes:", "total_net_output_bytes:")
			for b.Loop() {
				round()
			}
			n := float64(b.N)
			b.ReportMetric((redisInfo(b, client, "used_cpu_user_main_thread:", "used_cpu_sys_main_thread:")-cpu)*1000/n, "redis-ms/round")
			b.ReportMetric((redisInfo(b, client, "total_net_input_bytes:", "total_net_output_bytes:")-bytes)/1e6/n, "MB/round")
		})
	}
}

// BenchmarkForecast is how long a daemon takes to forecast all campaigns, each with quotas of its own.
func BenchmarkForecast(b *testing.B) {
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: 7, To: 55}}, time.UTC)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 0, 24, 0, 0, time.UTC)
	for name, windows := range map[string][]delivery.Window{
		"small":    {{Span: 30 * time.Second, Limit: 7}, {Span: 5 * time.Second, Limit: 5, Algorithm: delivery.AlgorithmFixed}},
		"log":      {{Span: time.Second, Limit: 5, Algorithm: delivery.AlgorithmLog}, {Span: time.Minute, Limit: 90, Algorithm: delivery.AlgorithmLog}},
		"registry": {{Span: time.Minute, Limit: 300}, {Span: time.Hour, Limit: 15_750}, {Span: 24 * time.Hour, Limit: 300_000}},
	} {
		for _, campaigns := range []int{10, 1000} {
			b.Run(fmt.Sprintf("windows=%s/campaigns=%d", name, campaigns), func(b *testing.B) {
				waiting := map[*delivery.Campaign]todo{}
				var seen []delivery.WindowState
				for i := range campaigns {
					q := &delivery.Quota{ID: strconv.Itoa(i), Revision: 1, Windows: windows}
					for w := range windows {
						seen = append(seen, delivery.WindowState{Quota: q.ID, Window: w, Remaining: windows[w].Limit})
					}
					c := campaign(q.ID, int64(1+i%20), 1, q)
					if i%2 == 0 {
						c.Hours = hours
					}
					waiting[c] = todo{float64(100 * (1 + i%1000)), 1}
				}
				for b.Loop() {
					f := newForecast(now, waiting, seen)
					for c, jobs := range waiting {
						f.done(c, jobs)
					}
				}
			})
		}
	}
}

// newFleet returns the parts of daemons that share 256 lanes, each with jobs of all campaigns in memory and on their way.
func newFleet(daemons, campaigns int) []*part {
	fleet := make([]*part, daemons)
	sinks := []SinkReport{{Sink: "receiver", Most: 256}, {Sink: "mail", Most: 64}, {Sink: "push", Most: 1024}, {Sink: "archive", Most: 16}}
	for i := range fleet {
		r := Readings{Figures: DaemonFigures{Ingress: 4, Timers: 8, BufferBytes: 100 << 20, BufferMost: 256 << 20, Quantum: 0.025}, Sinks: sinks}
		for k := range sinks {
			sinks[k].InFlight = 100
			for cell := range 20 {
				r.Lateness[20+cell], sinks[k].Took[50+cell] = 1000, 1000
			}
			for class := range sinks[k].Answers {
				sinks[k].Answers[class] = 30_000
			}
		}
		start := time.Now()
		x := newRecent(start)
		n := Daemon{Name: "GQ3DQMJYGAZDCNBRGE2TSNZXHA" + strconv.Itoa(i), Host: "pacer-7d9c5b8f4-x2k9p", Address: ":8080", Version: "v1.0.0", Started: start, Ready: true, State: "ready", Revision: 4711}
		fleet[i] = &part{Lanes: delivery.LanesBacklog{Generation: 1}}
		n.Figures, fleet[i].Sinks = x.report(start.Add(reportOver), r)
		fleet[i].Nodes = []Daemon{n}
	}
	lanes := make([]delivery.LaneBacklog, 256)
	for i := range lanes {
		lanes[i].Lane = i
	}
	for c := range campaigns {
		hash := delivery.CampaignHash("campaign-" + strconv.Itoa(c))
		l := &lanes[c%len(lanes)]
		l.Waiting = append(l.Waiting, delivery.CampaignCount{Campaign: hash, Jobs: 100_000})
		for _, p := range fleet {
			p.Memory = append(p.Memory, memory{Campaign: hash, Direct: 10, Jobs: 20, Units: 20, InHand: 2})
			p.Tallies = append(p.Tallies, tally{hash, 5_000_000, 5_000_000})
		}
	}
	for i, l := range lanes {
		p := fleet[i%daemons]
		p.Lanes.Lanes = append(p.Lanes.Lanes, l)
	}
	return fleet
}

// redisInfo adds up figures of INFO.
func redisInfo(b *testing.B, client *redis.Client, names ...string) (sum float64) {
	b.Helper()
	text, err := client.Info(context.Background(), "cpu", "stats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		for _, name := range names {
			if value, found := strings.CutPrefix(strings.TrimSpace(line), name); found {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
