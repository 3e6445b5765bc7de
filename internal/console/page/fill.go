package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// shortList is how many entries a list of the first page has, and maxRows how many rows the table of quotas.
	shortList = 10
	maxRows   = 500
)

// table is a table of campaigns.
type table struct {
	Caption string
	List    []*view.Campaign
	Ticks   bool // each has a box to be ticked, of the form with the id ticked
}

// windowRow is a window of a quota in a table.
type windowRow struct {
	Quota  string
	Window view.Window
}

func fillOverview(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Overview"
	var tight []windowRow
	for _, q := range c.State.Quotas {
		for _, w := range q.Windows {
			if w.Used() > 0 {
				tight = append(tight, windowRow{q.ID, w})
			}
		}
	}
	left := func(w *view.Window) float64 { return float64(*w.Remaining) / float64(max(1, w.Limit)) }
	slices.SortStableFunc(tight, func(a, b windowRow) int {
		return cmp.Or(cmp.Compare(left(&a.Window), left(&b.Window)), cmp.Compare(b.Window.Seconds, a.Window.Seconds))
	})
	largest, _, _ := c.State.Select(view.Selection{Sort: "backlog"}, shortList)
	data := struct {
		Tight   []windowRow
		Largest table
		Stores  []view.Store
		Dead    view.Dead
		Shut    view.Shut
		Changes changesTable

		Hour     *plot
		Done     *time.Time // when everything that waits will have been sent; nil: not known
		Problems []problem
	}{
		Tight: tight[:min(len(tight), shortList)], Largest: table{Caption: "The ten campaigns with most jobs waiting", List: largest},
		Stores: s.watcher.Stores(), Dead: s.watcher.Dead(ctx), Shut: s.watcher.Shut(ctx), Changes: s.lastChanges(ctx, catalog.ChangesOf{}), Done: doneAt(c.State),
	}
	now := time.Now()
	past := s.watcher.History().Of(view.EveryCampaign, now.Add(-view.HistoryKept))
	data.Hour = lastHour(past, "allowed to campaigns with a backlog", now)
	data.Problems = problems(c.State, data.Stores, &data.Dead, &data.Shut)
	c.Data = data
}

func fillCampaigns(_ context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Campaigns"
	by := view.SelectionOf(query)
	list, all, next := c.State.Select(by, view.PageSize)
	first := by
	first.After = ""
	c.Data = struct {
		By, First view.Selection
		Next      *view.Selection
		All       int
		Sorts     []string
		Table     table
	}{by, first, next, all, view.Sorts, table{
		Caption: "What they may send, send and have waiting", List: list,
		Ticks: c.Who.Role >= auth.Operator && s.watcher.Sources().Catalog != nil && len(list) > 0,
	}}
}

func fillCampaign(ctx context.Context, s *Site, query url.Values, c *content) {
	id := query.Get("id")
	campaign := s.watcher.Detailed(ctx, c.State, id)
	if campaign == nil {
		c.fail(http.StatusNotFound, "There is no campaign %s.", notation.Shorten(id))
		return
	}
	c.Title = campaign.ID
	var windows []windowRow
	for _, name := range campaign.Quotas {
		if q := c.State.Quota(name); q != nil {
			for _, w := range q.Windows {
				windows = append(windows, windowRow{q.ID, w})
			}
		}
	}
	now := time.Now()
	past := s.watcher.History().Of(id, now.Add(-view.HistoryKept))
	phases, cut := s.watcher.Preview(id, now.Truncate(time.Minute))
	data := struct {
		Campaign *view.Campaign
		Windows  []windowRow
		Hour     *plot
		Ahead    *ahead
		Dead     view.Dead
		DeadOf   []view.LetterCount
		Changes  changesTable
		Form     *view.Settings // nil: there are no forms
	}{
		Campaign: campaign, Windows: windows, Hour: lastHour(past, "allowed by its schedule and status", now), Ahead: scheduleAhead(phases, cut, campaign.TimeZone),
		Dead: s.watcher.Dead(ctx), Changes: s.lastChanges(ctx, catalog.ChangesOf{Campaign: id}),
	}
	data.DeadOf = data.Dead.Of(id)
	// The shown state may be a second old. A form needs the newest revision, so it is read from the database. The stream sends no forms.
	if s.watcher.Sources().Catalog != nil && c.Who.Role >= auth.Operator && !query.Has("page") {
		data.Form, _ = s.watcher.Sources().Campaign(ctx, id) // without an answer there is nothing to be changed
	}
	c.Data = data
}

// changesTable is a table of changes.
type changesTable struct {
	Caption string
	List    []catalog.Change
	Edit    bool // a link leads to the form, with the values from before the change
	Fault   string
}

// shortChanges is how many changes are shown on a page of something else.
const shortChanges = 5

// lastChanges are the last ones of what is selected.
func (s *Site) lastChanges(ctx context.Context, of catalog.ChangesOf) changesTable {
	of.Limit = shortChanges
	table := changesTable{Caption: "The last changes"}
	list, err := s.watcher.Recent(ctx, of, auth.Of(ctx).Role >= auth.Admin)
	if table.List = list; err != nil {
		table.Fault = "Not known: " + brief(err)
	}
	return table
}

func fillQuotas(_ context.Context, _ *Site, _ url.Values, c *content) {
	c.Title = "Quotas"
	type row struct {
		Quota  *view.Quota
		Window *view.Window
	}
	var rows []row
	cut := 0
	for i, q := range c.State.Quotas {
		if len(rows) >= maxRows {
			cut = i
			break
		}
		if len(q.Windows) == 0 {
			rows = append(rows, row{q, nil})
		}
		for i := range q.Windows {
			rows = append(rows, row{q, &q.Windows[i]})
		}
	}
	c.Data = struct {
		Rows []row
		Cut  int
	}{rows, cut}
}

func fillDaemons(_ context.Context, _ *Site, _ url.Values, c *content) { c.Title = "Daemons" }

// changesOf reads which changes to show from the query of a URL.
func changesOf(query url.Values) catalog.ChangesOf {
	of := catalog.ChangesOf{
		Campaign: query.Get("campaign"), Quota: query.Get("quota"), Destination: query.Get("destination"), Who: strings.TrimSpace(query.Get("who")), Limit: view.PageSize,
	}
	of.Before, _ = strconv.ParseInt(query.Get("before"), 10, 64) // 0: from the newest on
	return of
}

// changesQuery is the opposite of changesOf.
func changesQuery(of catalog.ChangesOf) string {
	before := ""
	if of.Before > 0 {
		before = strconv.FormatInt(of.Before, 10)
	}
	return view.Query(map[string]string{"campaign": of.Campaign, "quota": of.Quota, "destination": of.Destination, "who": of.Who, "before": before})
}

func fillChanges(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Changes"
	of := changesOf(query)
	data := struct {
		Of    catalog.ChangesOf
		Table changesTable
		Next  string // query of the next page; "" on the last
		All   string // query of all pages
	}{Of: of, Table: changesTable{
		Caption: "Changes of campaigns, quotas and destinations, the newest first",
		Edit:    auth.Of(ctx).Role >= auth.Admin && s.watcher.Sources().Catalog != nil,
	}}
	if s.watcher.Sources().Catalog == nil {
		data.Table.Fault = "There is no database here, and so no record of changes."
	} else if list, err := s.watcher.Sources().Changes(ctx, of); err != nil {
		data.Table.Fault = "Changes are not known: " + brief(err)
	} else if data.Table.List = list; len(list) == of.Limit {
		next := of
		next.Before = list[len(list)-1].Number
		data.Next = changesQuery(next)
	}
	data.All = changesQuery(catalog.ChangesOf{Campaign: of.Campaign, Quota: of.Quota, Destination: of.Destination, Who: of.Who})
	c.Data = data
}
