package catalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pacer/pacer/internal/delivery"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"message: remedy": &pgconn.PgError{Code: "23514", Message: "message", Hint: "remedy"},
		"message":         fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "40001", Message: "message"}),
		ErrSchema.Error(): &pgconn.PgError{Code: "42P01", Message: `relation "pacer.campaigns" does not exist`},
	} {
		got := explain(err)
		var server *pgconn.PgError
		if got.Error() != want || !errors.As(got, &server) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	other := errors.New("other")
	if !errors.Is(explain(other), other) || explain(nil) != nil {
		t.Error("errors of others are changed")
	}
}

// TestMemoryHoldsWhatCannotBeUsed: a bad window or a quota that is not there holds the campaign, and only that one.
func TestMemoryHoldsWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	m.PutQuota(delivery.Quota{ID: "bad", Windows: []delivery.Window{{Span: time.Minute, Limit: -1}}})
	m.PutCampaign(delivery.Campaign{ID: "linked"}, "bad")
	m.PutCampaign(delivery.Campaign{ID: "orphan"}, "nowhere")
	m.PutCampaign(delivery.Campaign{ID: "good"})
	s := m.Snapshot()
	if s.Campaign("linked").Invalid == "" || s.Campaign("orphan").Invalid == "" || s.Campaign("good").Invalid != "" {
		t.Errorf("%+v", s.Campaigns)
	}
	m.PutQuota(delivery.Quota{ID: "here", Shard: 1})
	m.PutQuota(delivery.Quota{ID: "soft", Shard: 3, Mode: delivery.ModeEventual})
	m.PutQuota(delivery.Quota{ID: "there", Shard: 2})
	m.PutCampaign(delivery.Campaign{ID: "divided"}, "here", "soft", "there")
	m.PutCampaign(delivery.Campaign{ID: "whole"}, "here", "soft")
	if c := m.Snapshot().Campaign("divided"); !strings.Contains(c.Invalid, "several shards of the store: here in shard 1, there in shard 2;") {
		t.Errorf("%q", c.Invalid)
	}
	equal(t, "the fault", m.Snapshot().Campaign("whole").Invalid, "")
	var many []string
	for i := range delivery.MaxQuotas + 1 {
		many = append(many, fmt.Sprint("q", i))
		m.PutQuota(delivery.Quota{ID: many[i]})
	}
	m.PutCampaign(delivery.Campaign{ID: "most"}, many[1:]...)
	m.PutCampaign(delivery.Campaign{ID: "more"}, many...)
	m.PutQuota(delivery.Quota{ID: "a b"})
	m.PutCampaign(delivery.Campaign{ID: "spaced"}, "a b")
	for id, want := range map[string]string{"most": "", "more": "it has 17 quotas; a campaign has at most 16", "spaced": `quota "a b": id ` + delivery.IDRule} {
		equal(t, "the fault of "+id, m.Snapshot().Campaign(id).Invalid, want)
	}
	m.PutQuota(delivery.Quota{ID: "nowhere"})
	if c := m.Snapshot().Campaign("orphan"); c.Invalid != "" || len(c.Quotas) != 1 {
		t.Errorf("%+v", c)
	}
	if m.ChangeCampaign("nobody", func(*delivery.Campaign) { t.Error("there is no such campaign") }) {
		t.Error("changed an unknown campaign")
	}
}

// TestAForecastThatHasPassed: daemons say every few seconds when all will have been sent; in between, that instant passes
// although there is work left.
func TestAForecastThatHasPassed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct{ saidAgo, doneIn, want time.Duration }{
		{time.Second, 10 * time.Second, 10 * time.Second},
		{4 * time.Second, -2 * time.Second, 2 * time.Second},
	} {
		said, done := now.Add(-c.saidAgo), now.Add(c.doneIn)
		p := CampaignProgress{Backlog: 5, DoneAt: &done, UpdatedAt: &said}
		p.complete(now, 0)
		if *p.ETASeconds != c.want.Seconds() || !p.DoneAt.Equal(now.Add(c.want)) {
			t.Errorf("said %s ago, done in %s: eta %g s, want %s", c.saidAgo, c.doneIn, *p.ETASeconds, c.want)
		}
	}
}
