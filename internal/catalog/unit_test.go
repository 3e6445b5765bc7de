package catalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

func TestWindows(t *testing.T) {
	t.Parallel()
	const spelled = "300/1m,5/10s:log,7/1h:fixed,300000/1d:fixed:day@Europe/Moscow,1/31d:fixed:month"
	want := []delivery.Window{
		{Span: time.Minute, Limit: 300, Algorithm: "sliding"}, {Span: 10 * time.Second, Limit: 5, Algorithm: "log"},
		{Span: time.Hour, Limit: 7, Algorithm: "fixed"},
		{Span: day, Limit: 300000, Algorithm: "fixed", Anchor: "day@Europe/Moscow"},
		{Span: 31 * day, Limit: 1, Algorithm: "fixed", Anchor: "month"},
	}
	equal(t, "windows", try(ParseWindows(" "+strings.ReplaceAll(spelled, ",", " , ")))(t), want)
	equal(t, "the formatted windows", strings.Join(column(want, notation.FormatWindow), ","), spelled)
	equal(t, "no windows", try(ParseWindows(" "))(t), []delivery.Window{})
	for _, text := range []string{
		"300", "300/", "x/1m", "3.5/1m", "-1/1m", "1/0s", "1/400d", "1/1m:bucket", "1001/1m:log", "1/1m,2/60s", "1/1m,,2/1h", "1000000000000001/1m",
		"10001/1m:log", "1/1d::day", "1/1d:sliding:day", "1/1d:fixed:noon", "1/1d:fixed:day@Nowhere", "1/30d:fixed:month", "1/1h:fixed:day",
	} {
		if windows, err := ParseWindows(text); err == nil {
			t.Errorf("%q was read as %+v", text, windows)
		}
	}
}

// TestRatesSurviveTheDatabase: what is stored and what formatMicros writes is the same rate again.
func TestRatesSurviveTheDatabase(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "millionths")
		per := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 90 * time.Second, time.Hour, day, model.MaxSpan}).Draw(t, "per")
		want, err := delivery.NewRate(n, per)
		if err != nil {
			t.Skip(err)
		}
		text := notation.FormatMicros(n)
		if got, err := parseStoredRate(text, per); err != nil || got != want {
			t.Fatalf("%s per %s: %v, %v; want %v", text, per, got, err, want)
		}
		if last := text[len(text)-1]; last == '.' || (last == '0' && n%1_000_000 != 0) {
			t.Fatalf("trailing zeros: %s", text)
		}
	})
}

func TestHints(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]bool{
		"campaigns spring": true, "quotas q": true, "destinations d": true,
		"campaigns": false, "quotas": false, "": false, "something else": false,
	} {
		equal(t, payload, namesRow(payload), want)
	}
}

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
		p.complete(now, nil)
		if *p.ETASeconds != c.want.Seconds() || !p.DoneAt.Equal(now.Add(c.want)) {
			t.Errorf("said %s ago, done in %s: eta %g s, want %s", c.saidAgo, c.doneIn, *p.ETASeconds, c.want)
		}
	}
}
