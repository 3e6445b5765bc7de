package page

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

const (
	// shortList is how many entries a list of the first page has, and maxRows how many rows the table of quotas.
	shortList = 10
	maxRows   = 500
)

type table struct {
	Caption string
	List    []*view.Campaign
}

// windowRow is a window of a quota in a table; nil: it has none.
type windowRow struct {
	Quota  *view.Quota
	Window *view.Window
}

// windowsOf returns the rows of a quota; none if it has no windows.
func windowsOf(q *view.Quota) (rows []windowRow) {
	for i := range q.Windows {
		rows = append(rows, windowRow{q, &q.Windows[i]})
	}
	return rows
}

func fillOverview(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Overview"
	var tight []windowRow
	for _, q := range c.State.Quotas {
		tight = append(tight, slices.DeleteFunc(windowsOf(q), func(r windowRow) bool { return r.Window.Used() == 0 })...)
	}
	left := func(w *view.Window) float64 { return float64(*w.Remaining) / float64(max(1, w.Limit)) }
	slices.SortStableFunc(tight, func(a, b windowRow) int {
		return cmp.Or(cmp.Compare(left(a.Window), left(b.Window)), cmp.Compare(b.Window.Seconds, a.Window.Seconds))
	})
	largest, _, _ := c.State.Select(view.Selection{Sort: "backlog"}, shortList)
	data := struct {
		Tight   []windowRow
		Largest []*view.Campaign
		Stores  []view.Store
		Dead    view.Dead
		Changes changes

		Curve    *curve
		Done     *time.Time // when everything that waits will have been sent; nil: see Rest
		Rest     string
		Problems []problem
	}{
		Tight: tight[:min(len(tight), shortList)], Largest: slices.DeleteFunc(largest, func(c *view.Campaign) bool { return c.Backlog == nil || *c.Backlog == 0 }),
		Stores: s.watcher.Sources().Stores(), Dead: s.watcher.Dead(ctx), Changes: s.lastChanges(ctx, c.State, catalog.ChangesOf{}),
	}
	data.Done, data.Rest = doneAt(c.State)
	data.Curve = s.curve(ctx, "", query, c.State, "./?last=")
	data.Problems = s.problems(ctx, c.State, data.Stores, &data.Dead)
	c.Data = data
}

func fillCampaigns(_ context.Context, _ *Site, query url.Values, c *content) {
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
		Filters   []formField
		Table     table
	}{by, first, next, all, view.Sorts, filters(c.State, map[string]string{"state": by.State, "quota": by.Quota, "sink": by.Sink}), table{
		Caption: "What they may send, send and have waiting", List: list,
	}}
}

func fillCampaign(ctx context.Context, s *Site, query url.Values, c *content) {
	id := query.Get("id")
	campaign := s.watcher.Detailed(ctx, c.State, id)
	if campaign == nil {
		c.missing("campaign", id)
		return
	}
	c.Title = campaign.ID
	var windows []windowRow
	for _, name := range campaign.Quotas {
		if q := c.State.Quota(name); q != nil {
			windows = append(windows, windowsOf(q)...)
		}
	}
	phases, cut := s.watcher.Preview(id, time.Now().Truncate(time.Minute))
	data := struct {
		Campaign *view.Campaign
		Windows  []windowRow
		Curve    *curve
		Bar      *bar
		Units    string // of its rate
		Per      string
		Pers     []per
		Ahead    *ahead
		Dead     view.Dead
		DeadOf   []view.LetterCount
		Changes  changes
		Form     *catalog.CampaignRow // nil: there are no forms
	}{
		Campaign: campaign, Windows: windows, Ahead: scheduleAhead(phases, cut, campaign.TimeZone),
		Dead: s.watcher.Dead(ctx), Changes: s.lastChanges(ctx, c.State, catalog.ChangesOf{Campaign: id}),
	}
	data.DeadOf = data.Dead.Of(id)
	data.Bar, data.Pers = barOf(campaign), pers
	data.Curve = s.curve(ctx, id, query, c.State, "campaign?"+view.Query(map[string]string{"id": id})+"&last=")
	// The shown state may be a second old. A form needs the newest revision, so it is read from the database. The stream sends no forms.
	if c.Who.Role >= auth.Operator && !query.Has("page") {
		if data.Form, _ = s.watcher.Sources().Campaign(ctx, id); data.Form != nil { // without an answer there is nothing to be changed
			data.Units, data.Per = splitRate(data.Form.Rate)
			if !slices.ContainsFunc(pers, func(p per) bool { return p.Short == data.Per }) {
				data.Units, data.Per = data.Form.Rate, "s"
			}
		}
	}
	c.Data = data
}

// changes are what was changed, in sentences.
type changes struct {
	List  []sentence
	Whole bool // with who and what made the change, as the database knows them
	Fault string
}

// shortChanges is how many changes are shown on a page of something else.
const shortChanges = 5

func (s *Site) said(ctx context.Context, state *view.State, list []catalog.Change) (all []sentence) {
	who := auth.Of(ctx)
	role := who.Role
	if s.watcher.Sources().Catalog == nil {
		role = auth.Viewer
	}
	for _, c := range list {
		one := sentenceOf(c, state, role)
		if who.Name != "" && c.Actor == who.Actor() {
			one.By = "you"
		}
		all = append(all, one)
	}
	return all
}

// lastChanges are the last ones of what is selected.
func (s *Site) lastChanges(ctx context.Context, state *view.State, of catalog.ChangesOf) (c changes) {
	of.Limit = shortChanges
	list, err := s.watcher.Recent(ctx, of, auth.Of(ctx).Role >= auth.Admin)
	if c.List = s.said(ctx, state, list); err != nil {
		c.Fault = "Not known: " + view.Line(err)
	}
	return c
}

func fillQuotas(_ context.Context, _ *Site, _ url.Values, c *content) {
	c.Title = "Quotas"
	var rows []windowRow
	cut := 0
	for i, q := range c.State.Quotas {
		if len(rows) >= maxRows {
			cut = i
			break
		}
		if rows = append(rows, windowsOf(q)...); len(q.Windows) == 0 {
			rows = append(rows, windowRow{q, nil})
		}
	}
	c.Data = struct {
		Rows []windowRow
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
		Of      catalog.ChangesOf
		Changes changes
		Next    string // query of the next page; "" on the last
		All     string // query of all pages
	}{Of: of, Changes: changes{Whole: true}}
	if list, err := s.watcher.Sources().Changes(ctx, of); err != nil {
		data.Changes.Fault = "Changes are not known: " + view.Line(err)
	} else if data.Changes.List = s.said(ctx, c.State, list); len(list) == of.Limit {
		next := of
		next.Before = list[len(list)-1].Number
		data.Next = changesQuery(next)
	}
	data.All = changesQuery(catalog.ChangesOf{Campaign: of.Campaign, Quota: of.Quota, Destination: of.Destination, Who: of.Who})
	c.Data = data
}
