package catalog

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func settle(t *testing.T, h *Postgres, campaign string, delivered, dead, rejected, expired int64) {
	t.Helper()
	settled := delivery.Settled{
		delivery.OutcomeDelivered: delivered, delivery.OutcomeDead: dead, delivery.OutcomeRejected: rejected, delivery.OutcomeExpired: expired,
	}
	must(t, h.SaveProgress(t.Context(), []delivery.Progress{{Campaign: campaign, Settled: settled}}))
}

func add(t *testing.T, h *Postgres) {
	t.Helper()
	must(t, h.AddHistory(t.Context(), func(string) float64 { return 20 }))
}

// counts are the delivered and failed jobs of campaigns.
type counts = map[string][2]int64

// ofLastHour is the history of a campaign, or of all.
func ofLastHour(campaign string) HistoryOf {
	return HistoryOf{Campaign: campaign, Since: time.Now().Add(-time.Hour), Step: time.Minute}
}

// sums adds up the steps of a history.
func sums(t *testing.T, h *Postgres, of HistoryOf) counts {
	t.Helper()
	steps := try(h.History(t.Context(), of))(t)
	all := counts{}
	for i, s := range steps {
		if s.Start.Truncate(of.Step) != s.Start || i > 0 && s.Start.Before(steps[i-1].Start) {
			t.Errorf("step %+v is not one of %s, in order", s, of.Step)
		}
		sum := all[s.Campaign]
		all[s.Campaign] = [2]int64{sum[0] + s.Delivered, sum[1] + s.Failed}
	}
	return all
}

// holdsHistory checks that the sums of a history are the counts, however often it is added to. The largest campaigns are listed apart.
func holdsHistory(t *testing.T, h *Postgres) {
	settle(t, h, "c0", 100, 3, 2, 50)
	add(t, h)
	add(t, h) // another leader
	settle(t, h, "c0", 11, 0, 0, 0)
	for i := range 2 * HistoryApart {
		settle(t, h, fmt.Sprintf("c%d", i), int64(10*i), 0, 0, 0)
	}
	add(t, h)
	want := counts{"c0": {111, 5}, "": {10 + 20 + 30 + 40 + 50 + 60 + 70 + 80, 0}}
	for i := 2*HistoryApart - 7; i < 2*HistoryApart; i++ {
		want[fmt.Sprintf("c%d", i)] = [2]int64{int64(10 * i), 0}
	}
	equal(t, "of all", sums(t, h, ofLastHour("")), want)
	one := HistoryOf{Campaign: "c0", Since: time.Now().Add(-time.Hour), Step: time.Hour}
	equal(t, "of one", sums(t, h, one), counts{"c0": {111, 5}})
	one.Since = time.Now().Add(2 * time.Minute)
	equal(t, "of the future", sums(t, h, one), counts{})
	if steps, _ := h.History(t.Context(), ofLastHour("")); len(steps) == 0 || steps[0].Allowed == 0 {
		t.Errorf("what was allowed: %+v", steps)
	}
}

func TestHistory(t *testing.T) {
	dsn, conn := fresh(t)
	p := unstarted(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) SELECT 'c' || i, 5 FROM generate_series(0, 15) i`)
	holdsHistory(t, p)
	run(t, conn, `UPDATE pacer.campaign_progress SET dead = 1 WHERE campaign_id = 'c0'`) // letters were replayed
	add(t, p)
	settle(t, p, "c0", 0, 4, 0, 0)
	add(t, p)
	equal(t, "after a replay", sums(t, p, ofLastHour("c0")), counts{"c0": {111, 9}})
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'c0'`)
	equal(t, "of a campaign that is deleted", sums(t, p, ofLastHour("c0")), counts{})
}

// TestHistoryOfManyCampaigns: however many campaigns send, each minute has what was settled in it.
func TestHistoryOfManyCampaigns(t *testing.T) {
	dsn, conn := fresh(t)
	p := unstarted(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) SELECT 'c' || i, 5 FROM generate_series(1, $1) i`, 2*historyBatch+1)
	run(t, conn, `INSERT INTO pacer.campaign_progress (campaign_id, delivered) SELECT id, 3 FROM pacer.campaigns`)
	add(t, p)
	all := int64(0)
	for _, sum := range sums(t, p, ofLastHour("")) {
		all += sum[0]
	}
	equal(t, "the history has", all, 3*(2*historyBatch+1))
}

// TestHistoryIsPruned: minutes become hours after a day, with their sums, and are gone after eight days. A batch that ends within an hour does
// no harm.
func TestHistoryIsPruned(t *testing.T) {
	dsn, conn := fresh(t)
	p := unstarted(t, Options{DSN: dsn})
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('a', 5), ('b', 5)`)
	run(t, conn, `INSERT INTO pacer.campaign_history
		SELECT id, extract(epoch FROM now())::bigint / 60 - n, 2, 1, n FROM generate_series(0, 9 * 1440 - 1) AS n, pacer.campaigns`)
	week := HistoryOf{Campaign: "a", Since: time.Now().Add(-7 * day).Truncate(time.Hour), Step: time.Hour}
	before := sums(t, p, week)
	must(t, p.PruneHistory(t.Context(), time.Now()))
	equal(t, "the week", sums(t, p, week), before)
	if rows := value[int](t, conn, `SELECT count(*) FROM pacer.campaign_history`); rows < 2*(25*60+6*24) || rows > 2*(28*60+8*24) {
		t.Errorf("%d rows are left", rows)
	}
	steps := try(p.History(t.Context(), HistoryOf{Campaign: "a", Since: time.Now().Add(-9 * day), Step: time.Hour}))(t)
	if time.Since(steps[0].Start) > HistoryKept+2*time.Hour || steps[1].Delivered != 120 || steps[1].Failed != 60 {
		t.Errorf("the oldest are %+v", steps[:2])
	}
}

// TestPausedFor: those that are paused, and were paused for this reason at last.
func TestPausedFor(t *testing.T) {
	dsn, conn := fresh(t)
	admin := adminOf(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id, status) VALUES ('a', 'active'), ('b', 'active'), ('c', 'active'), ('before', 'paused')`)
	change := func(reason, action string, ids ...string) {
		t.Helper()
		try(admin.ChangeCampaigns(WithActor(t.Context(), Actor{Name: "olga", Reason: reason}), ids, BulkChange{Action: action}))(t)
	}
	change("all", "pause", "a", "b", "c", "before")
	change("", "resume", "b", "c")
	change("another", "pause", "c")
	run(t, conn, `UPDATE pacer.campaigns SET send_rate = 7 WHERE id = 'a'`)
	equal(t, "paused for it", try(admin.PausedFor(t.Context(), "all"))(t), []string{"a"})
}
