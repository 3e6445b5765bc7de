package progress

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/testservices"
)

// TestAnswersArePassedOn: that sinks work always, that a campaign is taken if somebody asks, and that one is held for
// refusals; never a daemon's own.
func TestAnswersArePassedOn(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer func() { _ = client.Close() }()
	exchange, catalog := NewRedisExchange(client, "p."), catalogOf(campaign("c", 10, 1), campaign("other", 10, 1))
	a, b := newMember(t, "a", exchange, newShelf(), catalog), newMember(t, "b", exchange, newShelf(), catalog)
	a.mine = delivery.Answers{Asks: []string{"c", "unknown"}, Works: map[string]time.Time{"sink": time.Now()}, Untried: map[string]time.Time{"sink": time.Now()}}
	a.exchange(t.Context())
	b.exchange(t.Context())
	if !slices.Equal(b.asked, nil) || len(b.heard.Works) != 1 || len(b.heard.Untried) != 1 || len(a.heard.Works) != 0 {
		t.Fatalf("b was asked %v and heard %+v; a heard %+v", b.asked, b.heard, a.heard)
	}
	at := time.Now().Add(-2 * time.Second)
	b.mine = delivery.Answers{Taken: map[string]time.Time{"c": at}, Works: map[string]time.Time{"sink": at, "gone": at}}
	b.stuck = []Stuck{{Campaign: "other", Cause: hold.Refused, Since: at}, {Campaign: "c", Cause: hold.Failing, Since: at}}
	b.exchange(t.Context())
	if !slices.Equal(b.asked, []string{"c"}) {
		t.Errorf("b was asked %v", b.asked)
	}
	a.exchange(t.Context())
	if e := a.heard; len(e.Works) != 1 || len(e.Taken) != 1 || len(e.Refused) != 1 || e.Refused["other"].UnixMicro() != at.UnixMicro() {
		t.Errorf("a heard %+v", e)
	}
	for _, got := range []time.Time{a.heard.Works["sink"], a.heard.Taken["c"]} {
		if got.After(at) || got.Before(at.Add(-time.Minute)) { // never later than it was
			t.Errorf("taken at %s, heard %s", at, got)
		}
	}
}

// TestAnswersAreBounded: the lists of a part have a bound, whatever happens.
func TestAnswersAreBounded(t *testing.T) {
	p := &part{}
	for i := range 3 * maxAnswers {
		hash := delivery.CampaignHash(fmt.Sprint(i))
		p.asks = append(p.asks, hash)
		p.taken, p.works = append(p.taken, seen{hash, 1}), append(p.works, seen{hash, 1})
	}
	got, err := decodePart(p.encode())
	if err != nil || len(got.asks) != maxAnswers || len(got.taken) != maxAnswers || len(got.works) != maxAnswers {
		t.Errorf("%d asks, %d taken, %d works: %v", len(got.asks), len(got.taken), len(got.works), err)
	}
}
