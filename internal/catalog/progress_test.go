package catalog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestProgressAddsUp: what several daemons save at once adds up, outlooks replace each other, a deleted campaign's row
// goes, and nothing makes no row.
func TestProgressAddsUp(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn, p := connected(t, dsn), running(t, Options{DSN: dsn})
	for i := range 50 {
		run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, expected_total) VALUES ($1, 5, $2)`, fmt.Sprintf("c%d", i), 100+i)
	}
	var daemons sync.WaitGroup
	for d := range 4 {
		daemons.Go(func() {
			for range 5 {
				var list []delivery.Progress
				for i := range 50 { // in another order on every daemon
					list = append(list, delivery.Progress{
						Campaign: fmt.Sprintf("c%d", (i*7+d*13)%50), Settled: delivery.Settled{delivery.OutcomeDelivered: 1, delivery.OutcomeDead: 2, delivery.OutcomeExpired: 3, delivery.OutcomeCancelled: 4, delivery.OutcomeRejected: 5},
					})
				}
				if err := p.SaveProgress(t.Context(), list); err != nil {
					t.Error(err)
				}
			}
		})
	}
	daemons.Wait()
	done := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, list := range [][]delivery.Progress{
		{{Campaign: "c1", Outlook: &delivery.Outlook{Backlog: delivery.Backlog{Waiting: 4, Retrying: 3, InFlight: 2}, DoneAt: done}}, {Campaign: "gone", Outlook: &delivery.Outlook{Backlog: delivery.Backlog{Waiting: 1}}}},
		{{Campaign: "c1", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}},
		{{Campaign: "c2", Outlook: &delivery.Outlook{Backlog: delivery.Backlog{Waiting: 3}}}},
		{},
	} {
		if err := p.SaveProgress(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	settled, err := p.LoadSettled(t.Context(), nil)
	if err != nil || len(settled) != 50 || settled["c0"] != (delivery.Settled{delivery.OutcomeDelivered: 20, delivery.OutcomeDead: 40, delivery.OutcomeExpired: 60, delivery.OutcomeCancelled: 80, delivery.OutcomeRejected: 100}) {
		t.Fatalf("%d, c0 %+v, %v", len(settled), settled["c0"], err)
	}
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	left := delivery.Settled{delivery.OutcomeDead: -3, delivery.OutcomeExpired: -1000} // replayed; not all of these were counted
	if err := a.AddSettled(t.Context(), []delivery.Progress{{Campaign: "c0", Settled: left}, {Campaign: "gone", Settled: left}}); err != nil {
		t.Error(err)
	}
	if settled, err = p.LoadSettled(t.Context(), nil); err != nil || settled["c0"] != (delivery.Settled{delivery.OutcomeDelivered: 20, delivery.OutcomeDead: 37, delivery.OutcomeCancelled: 80, delivery.OutcomeRejected: 100}) {
		t.Errorf("after a replay %+v, %v", settled["c0"], err)
	}
	stored, err := p.LoadOutlooks(t.Context())
	outlooks := map[string]delivery.Outlook{}
	for _, o := range stored {
		outlooks[o.Campaign] = *o.Outlook
	}
	if c1 := outlooks["c1"]; err != nil || len(outlooks) != 2 || outlooks["c2"] != (delivery.Outlook{Backlog: delivery.Backlog{Waiting: 3}}) || c1.Backlog != (delivery.Backlog{Waiting: 4, Retrying: 3, InFlight: 2}) || !c1.DoneAt.Equal(done) {
		t.Errorf("%+v, %v", outlooks, err)
	}
	row, err := oneCampaign(t.Context(), conn, "c1")
	if err != nil {
		t.Fatal(err)
	}
	g := row.Progress
	if g.Delivered != 21 || g.Rejected != 100 || g.Backlog != 9 || g.Retrying != 3 || g.InFlight != 2 || !g.DoneAt.Equal(done) || *g.ETASeconds < 3500 || *g.ETASeconds > 3600 ||
		*g.Percent != 100 {
		t.Errorf("%+v", g)
	}
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'c1'`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c1', 5), ('idle', 5)`)
	nothing := []delivery.Progress{{Campaign: "idle", Outlook: &delivery.Outlook{}}, {Campaign: "c2", Outlook: &delivery.Outlook{}}}
	if err := p.SaveProgress(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	for id, backlog := range map[string]int64{"c1": 0, "idle": 0, "c2": 0} {
		row, err := oneCampaign(t.Context(), conn, id)
		if err != nil || row.Progress.Backlog != backlog || (row.Progress.UpdatedAt != nil) != (id == "c2") {
			t.Errorf("%s: %+v, %v", id, row.Progress, err)
		}
	}
}

// TestCountsOfDestinationsAddUp: as those of campaigns, in one call with them. Replayed letters leave them, and a destination that is deleted takes
// its counts along.
func TestCountsOfDestinationsAddUp(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn, p := connected(t, dsn), running(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('shop', 5)`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) SELECT 'd' || i, 'https://shop.example/' FROM generate_series(0, 49) i`)
	settled := delivery.Settled{delivery.OutcomeDelivered: 1, delivery.OutcomeDead: 2, delivery.OutcomeExpired: 3, delivery.OutcomeRejected: 5}
	var daemons sync.WaitGroup
	for d := range 4 {
		daemons.Go(func() {
			for range 5 {
				list := []delivery.Progress{{Campaign: "shop", Settled: settled}, {Destination: "gone", Settled: settled}}
				for i := range 50 {
					list = append(list, delivery.Progress{Destination: fmt.Sprintf("d%d", (i*7+d*13)%50), Settled: settled})
				}
				if err := p.SaveProgress(t.Context(), list); err != nil {
					t.Error(err)
				}
			}
		})
	}
	daemons.Wait()
	waits := []delivery.Progress{{Destination: "d1", Outlook: &delivery.Outlook{Backlog: delivery.Backlog{Waiting: 7}}}, {Campaign: "shop", Outlook: &delivery.Outlook{Backlog: delivery.Backlog{Waiting: 9}}}}
	if err := p.SaveProgress(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	left := delivery.Settled{delivery.OutcomeDead: -3, delivery.OutcomeExpired: -1000}
	if err := a.AddSettled(t.Context(), []delivery.Progress{{Destination: "d1", Settled: left}, {Destination: "", Settled: left}}); err != nil {
		t.Error(err)
	}
	row, err := a.GetDestination(t.Context(), "d1")
	if g := row.Progress; err != nil || g.Delivered != 20 || g.Dead != 37 || g.Expired != 0 || g.Rejected != 100 || g.Failed() != 137 || g.Waiting != 7 || g.UpdatedAt == nil || row.Revision == 0 {
		t.Errorf("%+v, %v", g, err)
	}
	if c, err := oneCampaign(t.Context(), conn, "shop"); err != nil || c.Progress.Delivered != 20 || c.Progress.Backlog != 9 {
		t.Errorf("%+v, %v", c.Progress, err)
	}
	stored, err := p.LoadOutlooks(t.Context())
	if err != nil || len(stored) != 2 || stored[1].Destination != "d1" || stored[1].Outlook.Total() != 7 || stored[0].Campaign != "shop" {
		t.Errorf("%+v, %v", stored, err)
	}
	if of, err := p.LoadSettledOf(t.Context(), []string{"d1", "d2", "gone"}); err != nil || len(of) != 2 || of["d1"].Total() != 157 || of["d2"].Total() != 220 {
		t.Errorf("%+v, %v", of, err)
	}
	run(t, conn, `DELETE FROM pacer.destinations WHERE id = 'd1'`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('d1', 'https://shop.example/')`)
	if row, err := a.GetDestination(t.Context(), "d1"); err != nil || !reflect.DeepEqual(row.Progress, DestinationProgress{}) {
		t.Errorf("%+v, %v", row.Progress, err)
	}
}

// TestTheLastAnswersAreKept: ten of all daemons, the newest first, whichever saves last, and whatever they say.
func TestTheLastAnswersAreKept(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn, p := connected(t, dsn), running(t, Options{DSN: dsn})
	a := p.Admin()
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://shop.example/')`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('shop', 5)`)
	began := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	save := func(outlook *delivery.Outlook, delivered int64, seconds ...int) {
		t.Helper()
		one := delivery.Progress{Destination: "shop", Settled: delivery.Settled{delivery.OutcomeDelivered: delivered}, Outlook: outlook}
		for _, s := range seconds {
			one.Answers = append(one.Answers, delivery.Answer{At: began.Add(time.Duration(s) * time.Second), Job: fmt.Sprint("u-", s), Class: "temporary", Status: 500, Answer: `"'{}é \u0000`})
		}
		list := []delivery.Progress{one, {Campaign: "shop", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}, Outlook: outlook}}
		if err := p.SaveProgress(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want ...int) {
		t.Helper()
		row, err := a.GetDestination(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, answer := range row.Progress.Answers {
			got = append(got, int(answer.At.Sub(began)/time.Second))
			if answer.Job != fmt.Sprint("u-", got[len(got)-1]) || answer.Status != 500 || answer.Answer != `"'{}é \u0000` {
				t.Errorf("%+v", answer)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	save(nil, 0, 1, 3) // nothing else is known of it
	kept(3, 1)
	save(nil, 5)
	kept(3, 1)
	save(&delivery.Outlook{Backlog: delivery.Backlog{Waiting: 7}}, 1, 2, 9)
	kept(9, 3, 2, 1)
	save(nil, 0, 4, 5, 6, 7, 8, 10, 11)
	kept(11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
	if list, err := a.DestinationsAfter(t.Context(), "", 10); err != nil || len(list) != 1 || list[0].Progress.Answers != nil {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestProgressIsSavedWholeOrNotAtAll: what comes before an error, in an earlier statement, does not count again when all is
// tried again.
func TestProgressIsSavedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn, p := connected(t, dsn), running(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) SELECT 'c' || i, 5 FROM generate_series(1, 2 * $1::int) i`, progressBatch)
	list := make([]delivery.Progress, 0, 2*progressBatch)
	for i := range 2 * progressBatch {
		list = append(list, delivery.Progress{Campaign: fmt.Sprintf("c%d", i+1), Settled: delivery.Settled{delivery.OutcomeDelivered: 1}})
	}
	last := &list[slices.IndexFunc(list, func(p delivery.Progress) bool { return p.Campaign == "c999" })]
	last.Settled[delivery.OutcomeDelivered] = math.MaxInt64
	if err := p.SaveProgress(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if err := p.SaveProgress(t.Context(), list); err == nil {
		t.Fatal("more was saved than the catalog can hold")
	}
	if row, err := oneCampaign(t.Context(), conn, "c1"); err != nil || row.Progress.Delivered != 1 {
		t.Errorf("%+v, %v", row.Progress, err)
	}
	mixed := []delivery.Progress{list[0], {Campaign: "c2", Outlook: &delivery.Outlook{}}}
	if err := p.SaveProgress(t.Context(), mixed); !errors.Is(err, ErrInvalid) {
		t.Errorf("outlooks of one in two: %v", err)
	}
}

func TestProgressInMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	m.PutCampaign(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(1), ExpectedTotal: 10})
	m.PutCampaign(delivery.Campaign{ID: "open", Rate: delivery.PerSecond(1)})
	one := delivery.Settled{delivery.OutcomeDelivered: 1, delivery.OutcomeExpired: 2}
	for range 2 {
		list := []delivery.Progress{{Campaign: "c", Settled: one}, {Campaign: "open", Settled: one}, {Campaign: "gone", Settled: one}}
		if err := m.SaveProgress(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.LoadSettled(t.Context(), nil)
	if err != nil || !maps.Equal(got, map[string]delivery.Settled{"c": one.Plus(one)}) {
		t.Errorf("%+v, %v", got, err)
	}
}
