package consumer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// TestALaneSeesTheCampaignOfTheJob: where headers name a campaign, a lane takes the record for that of the job that is
// decoded from it.
func TestALaneSeesTheCampaignOfTheJob(t *testing.T) {
	v := &visit{reader: newLaneReader(discardLog()), now: time.Now()}
	rapid.Check(t, func(t *rapid.T) {
		raw := delivery.Record{Topic: "lanes", Value: []byte(rapid.SampledFrom([]string{`{"campaign":"c","payload":1}`, "x"}).Draw(t, "value"))}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			raw.Headers = append(raw.Headers, delivery.Header{
				Key:   rapid.SampledFrom([]string{delivery.HeaderCampaign, delivery.HeaderJobID, "Pacer-Campaign", "x"}).Draw(t, "key"),
				Value: []byte(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"c", "d", "", "(unknown)"})).Draw(t, "header")),
			})
		}
		full := broker.Clone(&raw)
		hash, whole := v.campaignOf(&raw)
		j := record.Decode(&full, delivery.FromLane, record.Limits{MaxWeight: delivery.MaxWeight}, time.Now())
		if hash != delivery.CampaignHash(j.Campaign) || whole != nil && whole.Campaign != j.Campaign {
			t.Fatalf("a lane takes a job of %q for one of another campaign", j.Campaign)
		}
	})
}
