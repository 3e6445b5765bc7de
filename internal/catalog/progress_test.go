package catalog

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestProgressAddsUp: what several daemons save at once of campaigns and destinations adds up, and outlooks replace each other. Replayed letters
// leave the counts, a row that is deleted takes them along, and nothing makes no row.
func TestProgressAddsUp(t *testing.T) {
	dsn, conn := fresh(t)
	ctx, p, a := t.Context(), unstarted(t, Options{DSN: dsn}), adminOf(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, expected_total) SELECT 'c' || i, 5, 100 + i FROM generate_series(0, 49) i`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) SELECT 'd' || i, 'https://shop.example/' FROM generate_series(0, 49) i`)
	one := delivery.Settled{
		delivery.OutcomeDelivered: 1, delivery.OutcomeDead: 2, delivery.OutcomeExpired: 3, delivery.OutcomeCancelled: 4, delivery.OutcomeRejected: 5,
	}
	var daemons sync.WaitGroup
	for d := range 4 {
		daemons.Go(func() {
			for range 5 {
				list := []delivery.Progress{{Campaign: "gone", Settled: one}, {Destination: "gone", Settled: one}}
				for i := range 50 { // in another order on every daemon
					id := fmt.Sprint((i*7 + d*13) % 50)
					list = append(list, delivery.Progress{Campaign: "c" + id, Settled: one}, delivery.Progress{Destination: "d" + id, Settled: one})
				}
				if err := p.SaveProgress(ctx, list); err != nil {
					t.Error(err)
				}
			}
		})
	}
	daemons.Wait()
	var all delivery.Settled // of 4 daemons, 5 times
	for outcome := range all {
		all[outcome] = 20 * one[outcome]
	}
	want := map[string]delivery.Settled{}
	for i := range 50 {
		want[fmt.Sprint("c", i)] = all
	}
	equal(t, "settled", try(p.LoadSettled(ctx, nil))(t), want)
	equal(t, "settled of destinations", try(p.LoadSettledOf(ctx, []string{"d1", "d2", "gone"}))(t), map[string]delivery.Settled{"d1": all, "d2": all})

	replayed := delivery.Settled{delivery.OutcomeDead: -3, delivery.OutcomeExpired: -1000} // not all of these were counted
	must(t, a.AddSettled(ctx, []delivery.Progress{
		{Campaign: "c0", Settled: replayed}, {Campaign: "gone", Settled: replayed}, {Destination: "d1", Settled: replayed}, {Settled: replayed},
	}))
	left := all
	left[delivery.OutcomeDead], left[delivery.OutcomeExpired] = all[delivery.OutcomeDead]-3, 0
	equal(t, "after a replay", try(p.LoadSettled(ctx, nil))(t)["c0"], left)
	equal(t, "of a destination after a replay", try(p.LoadSettledOf(ctx, []string{"d1"}))(t)["d1"], left)

	done := time.Now().Add(time.Hour).Truncate(time.Second)
	waiting := func(n int64) *delivery.Outlook { return &delivery.Outlook{Backlog: delivery.Backlog{Waiting: n}} }
	busy := delivery.Backlog{Waiting: 4, Retrying: 3, InFlight: 2}
	for _, list := range [][]delivery.Progress{
		{{Campaign: "c1", Outlook: waiting(1)}, {Campaign: "gone", Outlook: waiting(1)}, {Destination: "d1", Outlook: waiting(7)}},
		{{Campaign: "c1", Outlook: &delivery.Outlook{Backlog: busy, DoneAt: done}}},
		{{Campaign: "c1", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}},
		{{Campaign: "c2", Outlook: waiting(3)}},
		{},
	} {
		must(t, p.SaveProgress(ctx, list))
	}
	stored := map[string]delivery.Backlog{}
	for _, of := range try(p.LoadOutlooks(ctx))(t) {
		stored["campaign "+of.Campaign+", destination "+of.Destination] = of.Outlook.Backlog
		equal(t, "whether its end is known", of.Outlook.DoneAt.Equal(done), of.Campaign == "c1")
	}
	equal(t, "outlooks", stored, map[string]delivery.Backlog{
		"campaign c1, destination ": busy, "campaign c2, destination ": {Waiting: 3}, "campaign , destination d1": {Waiting: 7},
	})
	g := try(oneCampaign(ctx, conn, "c1"))(t).Progress
	if g.Delivered != 21 || g.Rejected != 100 || g.Backlog != 9 || g.Retrying != 3 || g.InFlight != 2 || !g.DoneAt.Equal(done) ||
		*g.ETASeconds < 3500 || *g.ETASeconds > 3600 || *g.Percent != 100 {
		t.Errorf("%+v", g)
	}
	d := try(a.GetDestination(ctx, "d1"))(t).Progress
	if d.Delivered != 20 || d.Dead != 37 || d.Expired != 0 || d.Rejected != 100 || d.Failed() != 137 || d.Waiting != 7 || d.UpdatedAt == nil || d.UpdatedAt.Location() != time.UTC {
		t.Errorf("%+v", d)
	}

	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'c1'`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c1', 5), ('idle', 5)`)
	run(t, conn, `DELETE FROM pacer.destinations WHERE id = 'd1'`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('d1', 'https://shop.example/')`)
	must(t, p.SaveProgress(ctx, []delivery.Progress{{Campaign: "idle", Outlook: &delivery.Outlook{}}, {Campaign: "c2", Outlook: &delivery.Outlook{}}}))
	for _, id := range []string{"c1", "idle", "c2"} {
		if g := try(oneCampaign(ctx, conn, id))(t).Progress; g.Backlog != 0 || (g.UpdatedAt != nil) != (id == "c2") {
			t.Errorf("%s: %+v", id, g)
		}
	}
	equal(t, "of a new destination", try(a.GetDestination(ctx, "d1"))(t).Progress, DestinationProgress{})
}

// TestTheLastAnswersAreKept: ten of all daemons, the newest first, whichever saves last, and whatever they say.
func TestTheLastAnswersAreKept(t *testing.T) {
	dsn, conn := fresh(t)
	p := unstarted(t, Options{DSN: dsn})
	a := adminOver(p)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://shop.example/')`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('shop', 5)`)
	began := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	save := func(outlook *delivery.Outlook, delivered int64, seconds ...int) {
		t.Helper()
		one := delivery.Progress{Destination: "shop", Settled: delivery.Settled{delivery.OutcomeDelivered: delivered}, Outlook: outlook}
		for _, s := range seconds {
			at := began.Add(time.Duration(s) * time.Second)
			one.Answers = append(one.Answers, delivery.Answer{At: at, Job: fmt.Sprint("u-", s), Class: "temporary", Status: 500, Answer: `"'{}é \u0000`})
		}
		list := []delivery.Progress{one, {Campaign: "shop", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}, Outlook: outlook}}
		must(t, p.SaveProgress(t.Context(), list))
	}
	kept := func(want ...int) {
		t.Helper()
		row := try(a.GetDestination(t.Context(), "shop"))(t)
		var got []int
		for _, answer := range row.Progress.Answers {
			got = append(got, int(answer.At.Sub(began)/time.Second))
			if answer.Job != fmt.Sprint("u-", got[len(got)-1]) || answer.Status != 500 || answer.Answer != `"'{}é \u0000` {
				t.Errorf("%+v", answer)
			}
		}
		equal(t, "seconds of answers", got, want)
	}
	save(nil, 0, 1, 3) // nothing else is known of it
	kept(3, 1)
	save(nil, 5)
	kept(3, 1)
	save(&delivery.Outlook{Backlog: delivery.Backlog{Waiting: 7}}, 1, 2, 9)
	kept(9, 3, 2, 1)
	save(nil, 0, 4, 5, 6, 7, 8, 10, 11)
	kept(11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
	equal(t, "answers in a list", try(a.DestinationsAfter(t.Context(), "", 10))(t)[0].Progress.Answers, nil)
}

// TestProgressIsSavedWholeOrNotAtAll: what comes before an error, in an earlier statement, does not count again when all is
// tried again.
func TestProgressIsSavedWholeOrNotAtAll(t *testing.T) {
	dsn, conn := fresh(t)
	p := unstarted(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) SELECT 'c' || i, 5 FROM generate_series(1, 2 * $1::int) i`, progressBatch)
	list := make([]delivery.Progress, 0, 2*progressBatch)
	for i := range 2 * progressBatch {
		list = append(list, delivery.Progress{Campaign: fmt.Sprintf("c%d", i+1), Settled: delivery.Settled{delivery.OutcomeDelivered: 1}})
	}
	last := &list[slices.IndexFunc(list, func(p delivery.Progress) bool { return p.Campaign == "c999" })]
	last.Settled[delivery.OutcomeDelivered] = math.MaxInt64
	must(t, p.SaveProgress(t.Context(), list))
	if err := p.SaveProgress(t.Context(), list); err == nil {
		t.Fatal("more was saved than the catalog can hold")
	}
	equal(t, "delivered", try(oneCampaign(t.Context(), conn, "c1"))(t).Progress.Delivered, 1)
	outlooksOfOne := []delivery.Progress{list[0], {Campaign: "c2", Outlook: &delivery.Outlook{}}}
	line(t, p.SaveProgress(t.Context(), outlooksOfOne), ErrInvalid, "")
}

// TestProgressOfACampaignThatIsChanged: an operator's change that takes its time does not keep the counts of daemons waiting.
func TestProgressOfACampaignThatIsChanged(t *testing.T) {
	dsn, conn := fresh(t)
	p := unstarted(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('c')`)
	tx := try(conn.Begin(t.Context()))(t)
	must(t, campaigns.lock(t.Context(), tx, "c", nil))
	must(t, p.SaveProgress(t.Context(), []delivery.Progress{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}}))
	must(t, tx.Rollback(t.Context()))
}

func TestProgressInMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	m.PutCampaign(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(1), ExpectedTotal: 10})
	m.PutCampaign(delivery.Campaign{ID: "open", Rate: delivery.PerSecond(1)})
	one := delivery.Settled{delivery.OutcomeDelivered: 1, delivery.OutcomeExpired: 2}
	for range 2 {
		list := []delivery.Progress{{Campaign: "c", Settled: one}, {Campaign: "open", Settled: one}, {Campaign: "gone", Settled: one}}
		must(t, m.SaveProgress(t.Context(), list))
	}
	equal(t, "settled", try(m.LoadSettled(t.Context(), nil))(t), map[string]delivery.Settled{"c": one.Plus(one)})
}
