package view

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/notation"
)

// PageSize is how many campaigns a page has.
const PageSize = 100

// CampaignFilter selects campaigns, as the API takes it; empty fields select all.
type CampaignFilter struct {
	Text  string `query:"q" json:"q,omitempty" maxLength:"256" doc:"part of the id"`
	State string `query:"state" json:"state,omitempty" enum:"sending,ramping,idle,active,invalid,cancelled,completed,ended,paused,rate,sink,refused,daemons,start,hours,gate,store,quota,failing,share,lane,stalled,unreadable,unanswered,kafka,turn" doc:"sending, ramping, idle, or what holds it; or a status"`
	Quota string `query:"quota" json:"quota,omitempty" maxLength:"256" doc:"id of a quota"`
	Sink  string `query:"sink" json:"sink,omitempty" maxLength:"256" doc:"name of a sink"`
}

// Selection is a page of a list of campaigns.
type Selection struct {
	CampaignFilter
	Sort  string `query:"sort" enum:"id,backlog,sent,delivered" default:"id"`
	After string `query:"after" maxLength:"256" doc:"id of the last campaign of the page before"`
}

// Sorts are the orders of campaigns.
var Sorts = []string{"id", "backlog", "sent", "delivered"}

// SelectionOf reads a selection from the query of a URL.
func SelectionOf(q url.Values) Selection {
	filter := CampaignFilter{Text: q.Get("q"), State: q.Get("state"), Quota: q.Get("quota"), Sink: q.Get("sink")}
	return Selection{filter, q.Get("sort"), q.Get("after")}
}

// Query formats the selection as the query of a URL.
func (s Selection) Query() string {
	return Query(map[string]string{"q": s.Text, "state": s.State, "quota": s.Quota, "sink": s.Sink, "sort": s.Sort, "after": s.After})
}

// Query formats parameters as the query of a URL, without those that are empty.
func Query(parameters map[string]string) string {
	v := url.Values{}
	for key, value := range parameters {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v.Encode()
}

func (s *CampaignFilter) selects(c *Campaign) bool {
	return (s.Text == "" || strings.Contains(c.ID, s.Text)) && (s.State == "" || c.State == s.State || c.Status == s.State || s.State == Ramping && c.Ramping) &&
		(s.Quota == "" || slices.Contains(c.Quotas, s.Quota)) && (s.Sink == "" || c.Sink == s.Sink)
}

// orders are by what campaigns are sorted: the larger, the earlier.
var orders = map[string]func(*Campaign) float64{
	"backlog":   func(c *Campaign) float64 { return float64(orZero(c.Backlog)) },
	"sent":      func(c *Campaign) float64 { return orZero(c.Sent) },
	"delivered": func(c *Campaign) float64 { return float64(orZero(c.Progress).Delivered) },
}

// sorted returns the campaigns of a state in each order. A state is sorted at most once, for all who look.
func (s *State) sorted() map[string]func() []*Campaign {
	sorted := map[string]func() []*Campaign{}
	for name, order := range orders {
		sorted[name] = sync.OnceValue(func() []*Campaign {
			return slices.SortedStableFunc(slices.Values(s.Campaigns), func(a, b *Campaign) int { return cmp.Compare(order(b), order(a)) })
		})
	}
	return sorted
}

func orZero[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// QuotasAfter returns at most limit quotas with higher ids, in their order, and whether there are more.
func (s *State) QuotasAfter(id string, limit int) (list []*Quota, more bool) {
	i, found := slices.BinarySearchFunc(s.Quotas, id, func(q *Quota, id string) int { return strings.Compare(q.ID, id) })
	if found {
		i++
	}
	list = append([]*Quota{}, s.Quotas[i:min(len(s.Quotas), i+limit)]...)
	return list, i+len(list) < len(s.Quotas)
}

// Select returns a page of at most limit campaigns, how many are selected on all pages, and the selection of the next page; nil if
// this is the last. Between two pages the order may change, unless it is that of the ids.
func (s *State) Select(by Selection, limit int) (page []*Campaign, all int, next *Selection) {
	campaigns, sorted := s.Campaigns, s.orders[by.Sort]
	if sorted != nil {
		campaigns = sorted()
	}
	begun := by.After == ""
	for _, c := range campaigns {
		begun = begun || sorted == nil && c.ID > by.After // also where that one is gone
		if by.selects(c) {
			if all++; begun && len(page) < limit {
				page = append(page, c)
			} else if begun && next == nil {
				following := by
				following.After = page[limit-1].ID
				next = &following
			}
		}
		begun = begun || c.ID == by.After
	}
	return page, all, next
}

// Missing is why a filter selects nothing: its quota or its sink is not known, which is catalog.ErrNotFound, or nothing is, which is
// catalog.ErrUnreachable. It is nil if there is nothing.
func (s *State) Missing(by CampaignFilter) error {
	switch {
	case s.known.snapshot == nil:
		return absent(notLoaded)
	case by.Quota != "" && s.Quota(by.Quota) == nil:
		return catalog.Fault(catalog.ErrNotFound, "there is no quota %s", notation.Shorten(by.Quota))
	case by.Sink != "" && !slices.ContainsFunc(s.Sinks, func(k *Sink) bool { return k.Name == by.Sink }):
		return catalog.Fault(catalog.ErrNotFound, "there is no sink %s: it is not configured, and nothing names it", notation.Shorten(by.Sink))
	}
	return nil
}
