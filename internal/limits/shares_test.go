package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

// Campaigns that compete share a quota by their priority weights, counted in units, under all job weights, algorithms and spendings. They
// use the whole quota.
func TestSharesFollowPriorityUnderEveryKindOfQuota(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, spend := range []string{delivery.SpendGreedy, delivery.SpendEven} {
		for _, algorithm := range []string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed} {
			for _, weights := range [][2]int64{{1, 1}, {5, 1}, {1, 5}, {5, 5}, {15, 2}} {
				t.Run(fmt.Sprint(spend, " ", algorithm, " ", weights), func(t *testing.T) {
					// Thousands of takes each: the model speaks for the scripts, which do the same.
					if !*everywhere && (weights[0] < 15 || spend == delivery.SpendEven) {
						sharesFollowPriority(t, model.NewStore(), spend, algorithm, weights)
						return
					}
					simulate(t, func(t *testing.T, s store) { sharesFollowPriority(t, s, spend, algorithm, weights) })
				})
			}
		}
	}
}

func sharesFollowPriority(t *testing.T, s store, spend, algorithm string, weights [2]int64) {
	const span, limit, spans = 4 * second, 60, 60
	q := &delivery.Quota{ID: "q", Revision: 1, Spend: spend, Windows: []delivery.Window{{Span: 4 * time.Second, Limit: limit, Algorithm: algorithm}}}
	modest, eager := waiting("modest", q, int(60/weights[0]), weights[0]), waiting("eager", q, int(60/weights[1]), weights[1])
	eager.ask.Campaign.PriorityWeight = 3
	settle(s, epoch, modest.ask.Campaign)
	now := settle(s, epoch, eager.ask.Campaign)
	wait(s, now, now+spans*span, modest, eager)
	all := modest.got + eager.got
	if least := int64(spans * limit * 9 / 10); all < least {
		t.Errorf("%d units, %d are allowed", all, spans*limit)
	}
	if part := float64(eager.got) / float64(all); part < 0.70 || part > 0.80 {
		t.Errorf("%d and %d units: %.0f %% instead of 75", modest.got, eager.got, 100*part)
	}
}
