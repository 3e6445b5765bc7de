package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// newLaneReader makes the reader of an empty lane, which reads only what it is given.
func newLaneReader(log *slog.Logger) *laneReader {
	src := sourceOf(partition{Topic: "lanes"}, delivery.FromLane)
	return &laneReader{reader: reader{opt: &Options{MaxWeight: 1, Logger: log}, src: src, receipt: src}}
}

func laneRecord(offset int64, campaign, value string) *delivery.Record {
	headers := []delivery.Header{{Key: delivery.HeaderCampaign, Value: []byte(campaign)}}
	return &delivery.Record{Topic: "lanes", Offset: offset, Value: []byte(value), Headers: headers}
}

// TestACatchUpThatBreaksCommitsNothing: a record that was left behind, and whose turn it is, is met again by the next read when
// a fetch fails before it.
func TestACatchUpThatBreaksCommitsNothing(t *testing.T) {
	r := newLaneReader(discardLog())
	src := r.src
	main := &visit{reader: r, now: time.Now()}
	catchUp := &visit{reader: r, now: time.Now(), catchUp: true}
	if err := main.record(laneRecord(0, "c", "{}")); err != nil || len(main.jobs) != 1 || src.lane.Main() != 1 {
		t.Fatalf("%d jobs, main %d, %v", len(main.jobs), src.lane.Main(), err)
	}
	src.giveBack(0, false)
	src.lane.GrantCapacity(delivery.CampaignHash("c"), 5)
	src.lane.BeginCatchUp(0)
	src.lane.BreakCatchUp()
	if at := src.lane.Committed(); at != 0 {
		t.Fatalf("%d is committed past a record that was left behind and not read", at)
	}
	src.lane.BeginCatchUp(0)
	if err := catchUp.record(laneRecord(0, "c", "{}")); err != nil || len(catchUp.jobs) != 1 {
		t.Fatalf("read again: %d jobs, %v", len(catchUp.jobs), err)
	}
	src.lane.EndCatchUp(1, 100)
	src.settle(0, "c", "")
	if at := src.lane.Committed(); at != 1 {
		t.Errorf("%d is committed of 1", at)
	}
}

// TestAFullLaneIsNotSilent: a lane whose main reader has to wait for a campaign to finish says so, once, and when it goes on.
func TestAFullLaneIsNotSilent(t *testing.T) {
	logs := &logBook{}
	r := newLaneReader(logs.Logger())
	v := &visit{reader: r, now: time.Now()}
	at := int64(0)
	for ; !v.stopped; at++ {
		if err := v.record(laneRecord(at, fmt.Sprint("c", at), "{}")); err != nil && !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
	}
	r.stopped = v.stopped
	now := time.Now()
	for range 4 {
		r.logUnread(now)
		now = now.Add(lastsAfter / 2)
	}
	full := func() float64 { return testutil.ToFloat64(r.src.metrics.lanesFull) }
	if n := len(logs.lines("WARN", "lanes/0", fmt.Sprintf("offset=%d", at-1))); n != 1 || full() != 1 {
		t.Errorf("%d warnings, %v full lanes: %s", n, full(), logs)
	}
	r.src.settle(0, "c", "")
	r.stopped = r.stopped && r.src.lane.Full()
	for range 2 {
		r.logUnread(now)
	}
	if n := len(logs.lines("INFO", "lanes/0")); n != 1 || full() != 0 {
		t.Errorf("%d lines of its end, %v full lanes: %s", n, full(), logs)
	}
}

// TestADamagedRecordIsLoggedOnce: however often a lane is read over it.
func TestADamagedRecordIsLoggedOnce(t *testing.T) {
	logs := &logBook{}
	r := newLaneReader(logs.Logger())
	damaged := func() *delivery.Record {
		return &delivery.Record{Topic: "lanes", Offset: 1, Flaw: &delivery.Flaw{Defect: delivery.ReasonTooLarge, Lost: 1}}
	}
	main := &visit{reader: r, now: time.Now()}
	catchUp := &visit{reader: r, now: time.Now(), catchUp: true}
	for _, rec := range []*delivery.Record{laneRecord(0, "c", "{}"), damaged(), laneRecord(2, "c", "{}")} {
		if err := main.record(rec); err != nil {
			t.Fatal(err)
		}
	}
	r.src.giveBack(2, false)
	r.src.giveBack(0, false)
	r.src.lane.GrantCapacity(delivery.CampaignHash("c"), 5)
	r.src.lane.BeginCatchUp(0)
	for _, rec := range []*delivery.Record{laneRecord(0, "c", "{}"), damaged(), laneRecord(2, "c", "{}")} {
		if err := catchUp.record(rec); err != nil {
			t.Fatal(err)
		}
	}
	if len(main.jobs) != 3 || len(catchUp.jobs) != 2 || len(logs.lines("level=ERROR", "lanes/0", "offset=1")) != 1 {
		t.Errorf("%d and %d jobs, logged: %s", len(main.jobs), len(catchUp.jobs), logs)
	}
}

// A campaign is known to wait for its turn for as long as lanes are told of room for it between two probes.
func TestToldLately(t *testing.T) {
	var is told
	at := time.Unix(1_000_000, 0)
	for i := range 10 {
		now := at.Add(time.Duration(i) * probeEvery * 2 / 3)
		is.note(1, now)
		if i < 3 {
			is.note(2, now)
		}
		if after := now.Add(probeEvery); !is.lately(1, now) || !is.lately(1, after) || is.lately(3, now) {
			t.Errorf("%d: %v, %v, %v", i, is.lately(1, now), is.lately(1, after), is.lately(3, now))
		}
		if is.lately(2, now) && i > 5 {
			t.Errorf("%d: the other one was told long ago", i)
		}
	}
	if is.lately(1, at.Add(10*probeEvery)) {
		t.Error("told long ago")
	}
}

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
