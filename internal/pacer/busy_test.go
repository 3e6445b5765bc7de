package pacer

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestSinkIsKeptBusy: campaigns whose rates are beyond what their sink can take keep its calls in use, although slots are lost
// that come due while none is free. Equal campaigns get equal parts, and slow ones their rates.
func TestSinkIsKeptBusy(t *testing.T) {
	testservices.Simulation(t)
	const (
		million    = 1_000_000
		warm, ends = 250 * time.Millisecond, 750 * time.Millisecond
	)
	for _, tc := range []struct {
		calls int
		lasts time.Duration // a call
		takes time.Duration // a take
		rates []int64       // of the campaigns
		least float64       // of what is possible
	}{
		{64, 4 * time.Millisecond, time.Millisecond, []int64{million}, 0.97},
		{64, 4 * time.Millisecond, 4 * time.Millisecond, []int64{million}, 0.97},
		{64, 4 * time.Millisecond, 8 * time.Millisecond, []int64{million}, 0.9},
		{256, 14 * time.Millisecond, time.Millisecond, []int64{million}, 0.97},
		{64, 4 * time.Millisecond, time.Millisecond, []int64{million, million, million}, 0.97},
		{64, 4 * time.Millisecond, time.Millisecond, []int64{million, 100, 1000}, 0.97},
	} {
		t.Run(fmt.Sprintf("%d calls of %v, takes of %v, rates %v", tc.calls, tc.lasts, tc.takes, tc.rates), func(t *testing.T) {
			b, ids := newBook(), []string(nil)
			for i, rate := range tc.rates {
				ids = append(ids, fmt.Sprint(i))
				b.set(campaign(ids[i], rate))
			}
			one(t, b, nil, func(t *testing.T, f *fleet) {
				f.store.latency = func() time.Duration { return tc.takes / 2 }
				f.receiver.max = tc.calls
				f.receiver.setLatency(tc.lasts)
				stop := f.feedAll(ids...)
				time.Sleep(ends - time.Since(f.receiver.began))
				stop()
				f.stop()
				sent, all := map[string]float64{}, 0.0
				for _, a := range f.receiver.history() {
					if a.at >= warm.Microseconds() && a.at < ends.Microseconds() {
						sent[a.campaign]++
						all++
					}
				}
				possible := float64(tc.calls) / tc.lasts.Seconds() * (ends - warm).Seconds()
				atLeast(t, all, tc.least*possible, "sent of %.0f", possible)
				for i, rate := range tc.rates {
					if n, part := sent[fmt.Sprint(i)], min(float64(rate)*(ends-warm).Seconds(), possible/float64(len(tc.rates))); n < 0.9*tc.least*part {
						t.Errorf("%.0f sent of %.0f of campaign %d", n, part, i)
					}
				}
			})
		})
	}
}

// TestRoomOfSinkAndCampaign: a campaign asks for no more slots than both itself and its sink have calls for.
func TestRoomOfSinkAndCampaign(t *testing.T) {
	one(t, newBook(), nil, func(t *testing.T, f *fleet) {
		p := f.daemons[0]
		for _, tc := range []struct {
			own, sink calls
			max       int
			want      int64
		}{
			{calls{}, calls{}, 0, 16},
			{calls{}, calls{inFlight: 10}, 0, 6},
			{calls{inFlight: 2}, calls{inFlight: 10}, 4, 2},
			{calls{inFlight: 2}, calls{inFlight: 15}, 8, 1},
			{calls{}, calls{lasts: 20_000}, 0, 16 + 11}, // what is used within 14 ms
		} {
			q := newQueue("c")
			q.campaign = &delivery.Campaign{ID: "c", Rate: delivery.PerSecond(1_000_000), MaxInFlight: tc.max}
			q.sink, q.calls = &sinkState{max: 16, calls: tc.sink}, tc.own
			q.push(&delivery.Job{Weight: 1})
			room := make(chan int64, 1)
			p.inbox.do(func(instant) { _, own := p.freeCalls(q, 75_000, instant{}); room <- own })
			exactly(t, <-room, tc.want, "room for: %+v", tc)
		}
	})
}
