package limits

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/testservices"
)

// example is a contest that once left a campaign with next to nothing.
type example struct {
	quotas    []string // windows, as "even 9/30s sliding, 54/2s log"
	campaigns []string // as "2/s x4 q0 q1 @ab": rate, priority, quotas, daemons if there are several
	least     float64  // part of what is its own that each has, at least
	fair      float64  // part of what falls to each by priority, of what all got, where others do not use theirs
	used      float64  // part of what all want that all have, 0: not compared
}

// examples are contests by name: the windows of each quota, then rate, priority, quotas and daemons of each campaign, and what is expected.
var examples = map[string]string{
	"what other windows would bring back too late is kept": `47/30s log, 42/12s fixed; 10/5s fixed
		5/s x2 q1; 5/s x1 q0 q1; 5/s x1 q1; 5/s x4 q0 q1; 5/s x1 q0: least 0.6`,
	"of two that keep what the other needs one lets go": `even 54/2s log, 9/30s sliding; even 42/30s log
		1/s x1 q0; 20/s x1 q1; 2/s x1 q0 q1; 100/s x1 q0 q1; 20/s x1 q0: least 0.5`,
	"even spending does not go at the pace of the slowest": `even 18/2s log
		5/s x1 q0; 20/s x2 q0; 5/s x2 q0; 1/s x4 q0: least 0.7, used 0.25`, // of 31 a second that they want 9 are allowed
	"what is kept is what other quotas let it use": `even 35/5s log, 19/12s log; 6/2s sliding; even 18/2s fixed
		20/s x1 q0 q1 q2; 2/s x1 q1; 100/s x1 q0 q1; 100/s x2 q2; 2/s x4 q0; 100/s x1 q2; 1/s x1 q1 q2; 5/s x2 q0: least 0.5`,
	"those who wait are not forgotten while their daemon refuses them": `5/30s sliding
		5/s x1 q0; 5/s x1 q0; 5/s x1 q0; 5/s x1 q0; 5/s x1 q0; 5/s x1 q0; 5/s x2 q0; 5/s x1 q0: least 0.8`,
	"a slow one has its rate in every fixed window": `120/30s fixed
		1/s x1 q0; 1/s x1 q0; 20/s x1 q0: least 0.9`,
	"what a slow one does not use others do": `8/2s log
		1/s x1 q0; 100/s x1 q0: least 0.9, used 0.033`, // of 101 a second that they want 4 are allowed
	"steps of a sliding window do not cut a slow one short": `300/60s sliding
		2/s x1 q0; 20/s x1 q0: least 0.9, used 0.21`, // of 22 a second that they want 5 are allowed
	"evenly, a unit that waits for a slot takes no more than its part of the span": `even 60/12s sliding
		2/s x1 q0; 20/s x1 q0: least 0.95, used 0.22`, // of 22 a second that they want 5 are allowed
	"evenly, the longest part of a span decides, whichever window is named first": `even 42/30s log, 11/2s sliding
		1/s x1 q0; 1/s x2 q0: least 0.9`,
	"nothing is kept of a fixed window for those who ask after its reset": `8/200ms fixed, 1000/2s log
		1/s x1 q0; 1/s x1 q0; 1/s x1 q0; 100/s x1 q0: least 0.9, used 0.26`, // of 103 a second that they want 40 are allowed, of which some are kept
	"evenly, the longest part of a span decides": `even 11/2s sliding, 42/30s log
		1/s x1 q0; 1/s x2 q0: least 0.9`,
	"of many, those who are owed are asked for before it is known how much there is": `8/2s sliding
		2/s x4 q0; 2/s x1 q0; 2/s x4 q0; 2/s x1 q0; 2/s x1 q0; 2/s x1 q0; 2/s x4 q0: least 0.9`,
	"of many, what has come back since it was asked is not forgotten": `18/2s sliding, 44/5s sliding
		1/s x1 q0; 1/s x2 q0; 1/s x2 q0; 1/s x1 q0; 1/s x1 q0; 1/s x1 q0; 1/s x2 q0: least 0.9, used 0.9`,
	"of many, a slow one has its rate in every fixed window": `120/30s fixed
		1/s x1 q0; 1/s x1 q0; 1/s x1 q0; 20/s x1 q0; 20/s x1 q0; 1/s x1 q0: least 0.9`,
	"of many, no reset that has passed stops all": `5/2s fixed; 26/12s sliding
		1/s x1 q0 q1; 1/s x2 q0 q1; 1/s x4 q0 q1; 1/s x1 q0 q1; 1/s x1 q0 q1; 1/s x1 q0 q1: least 0.5, used 0.3`,
	"of many, one whose rate is low is owed the rest of a fixed window": `35/12s fixed
		1/s x4 q0; 20/s x1 q0; 5/s x1 q0; 20/s x1 q0; 100/s x4 q0; 5/s x1 q0: least 0.85`,
	"evenly, of many, no more is kept for one than its rate lets it use": `even 59/2s sliding
		5/s x4 q0; 100/s x1 q0; 5/s x1 q0; 1/s x4 q0; 2/s x1 q0: least 0.9, used 0.23`, // of 113 a second that they want 28 are allowed
	"what is kept for one that its own rate makes wait is what it will use": `33/2s fixed
		5/s x1 q0; 100/s x1 q0; 2/s x4 q0; 2/s x4 q0: least 0.95, fair 0.9`,
	"what a long fixed window will lack is kept while a short one has less": `34/2s sliding, 54/30s fixed
		100/s x1 q0; 2/s x1 q0: least 0.85, used 0.016`, // of 102 a second that they want 1.8 are allowed
	"a reset of the short one before it asks is thought of": `25/2s fixed, 52/12s fixed
		20/s x2 q0; 2/s x1 q0; 1/s x2 q0; 1/s x2 q0: least 0.8`,
	"a reset of a short fixed window does not end what is owed in a longer one": `40/12s sliding, 15/2s fixed
		100/s x1 q0; 1/s x1 q0; 1/s x1 q0: least 0.8`,
	"a long window that has enough does not make a short one keep more": `60/5s fixed, 5/2s sliding
		1/s x2 q0; 100/s x1 q0: least 0.95, used 0.0185`, // of 101 a second that they want 2.3 are allowed, of which some are kept
	"what comes back of a short one before it asks is thought of": `31/2s sliding, 47/12s fixed
		100/s x1 q0; 1/s x2 q0: least 0.9`,
	"what a long fixed window will lack may be more than falls to it of a short one": `39/12s fixed, 30/2s fixed
		2/s x1 q0; 100/s x1 q0; 1/s x4 q0: least 0.9`,
	"of many, what a long fixed window will lack may be more than falls to one of a short one": `54/30s fixed, 51/2s fixed
		1/s x2 q0; 1/s x4 q0; 5/s x4 q0; 1/s x4 q0; 100/s x1 q0; 1/s x1 q0; 100/s x1 q0: least 0.8`,
	"of many, what a short one cannot give is not thought of": `58/12s fixed, 13/2s fixed
		20/s x1 q0; 2/s x1 q0; 1/s x1 q0; 1/s x2 q0; 100/s x1 q0: least 0.95, used 0.037`, // of 124 a second that they want 4.8 are allowed
	"evenly, no more is kept for one than its rate lets it use": `even 31/2s log
		20/s x4 q0; 5/s x4 q0; 5/s x1 q0: least 0.95, used 0.49`, // of 30 a second that they want 15 are allowed
	"what waits for the pace of one quota is not overtaken in another one": `even 59/30s sliding, 8/5s sliding; 17/5s log
		5/s x1 q0 q1; 20/s x1 q1; 5/s x4 q0 q1: least 0.5`,
	"one that cannot ask now is not overtaken by many": `6/5s sliding; even 35/12s log
		20/s x1 q1; 100/s x1 q1; 100/s x1 q1; 20/s x1 q0 q1; 100/s x1 q1; 100/s x4 q0 q1; 20/s x1 q0; 100/s x1 q0; 20/s x1 q1; 2/s x1 q0 q1: least 0.4`,
	"of two, each is the first in the quota that the other one needs": `even 12/2s sliding; even 12/2s sliding; 5/2s sliding
		20/s x1 q0 q1 q2; 20/s x2 q0 q1 q2: least 0.8`,
	"what comes again before a slow one of another daemon asks is not kept for it": `even 25/2s sliding, 58/5s fixed
		1/s x1 q0 @bc; 100/s x1 q0 @c; 1/s x1 q0 @ac: least 0.9, used 0.08`, // of 102 a second that they want 11 are allowed
	"a daemon of many is not forgotten beside one of few": `11/30s fixed
		2/s x4 q0 @a; 100/s x1 q0 @ab; 2/s x1 q0 @a; 1/s x4 q0 @a; 100/s x1 q0 @a; 100/s x1 q0 @ab: least 0.5`,
}

func TestExamplesOfCampaignsThatStarved(t *testing.T) {
	testservices.Simulation(t)
	for name, text := range examples {
		t.Run(name, func(t *testing.T) {
			x := parseExample(t, text)
			c := x.contest(t)
			c.run(limitstest.NewShared())
			all, want := 0.0, 0.0
			for i, fair := range c.fair() {
				all, want = all+float64(c.list[i].got), want+c.wants[i]
				if got := float64(c.list[i].got); got < x.fair*fair {
					t.Errorf("%s got %.0f of %.0f that fall to it: %s", c.list[i].ask.Campaign.ID, got, fair, c)
				}
				if got, least := float64(c.list[i].got), c.least(i); got < x.least*least {
					t.Errorf("%s got %.0f of %.0f: %s", c.list[i].ask.Campaign.ID, got, least, c)
				}
			}
			if all < x.used*want {
				t.Errorf("%.0f units of %.0f: %s", all, want, c)
			}
		})
	}
}

func parseExample(t *testing.T, text string) (x example) {
	t.Helper()
	quotas, rest, _ := strings.Cut(text, "\n")
	campaigns, expected, _ := strings.Cut(strings.TrimSpace(rest), ": ")
	x.quotas, x.campaigns = strings.Split(quotas, "; "), strings.Split(campaigns, "; ")
	bounds := map[string]*float64{"least": &x.least, "fair": &x.fair, "used": &x.used}
	for _, one := range strings.Split(expected, ", ") {
		name, value, _ := strings.Cut(one, " ")
		n, err := strconv.ParseFloat(value, 64)
		must(t, err)
		*bounds[name] = n
	}
	return x
}

func (x *example) contest(t *testing.T) *contest {
	t.Helper()
	c := &contest{}
	for i, text := range x.quotas {
		q := &delivery.Quota{ID: fmt.Sprintf("q%d", i), Revision: 1, Spend: delivery.SpendGreedy}
		if rest, even := strings.CutPrefix(text, "even "); even {
			q.Spend, text = delivery.SpendEven, rest
		}
		for _, one := range strings.Split(text, ", ") {
			var w delivery.Window
			var span string
			if _, err := fmt.Sscanf(strings.Replace(one, "/", " ", 1), "%d %s %s", &w.Limit, &span, &w.Algorithm); err != nil {
				t.Fatal(one, err)
			}
			w.Span, _ = notation.ParseSpan(span)
			c.longest = max(c.longest, int64(w.Span/time.Second))
			q.Windows = append(q.Windows, w)
		}
		c.quotas = append(c.quotas, q)
	}
	for i, text := range x.campaigns {
		var rate, priority int64
		if _, err := fmt.Sscanf(text, "%d/s x%d", &rate, &priority); err != nil {
			t.Fatal(text, err)
		}
		var quotas []*delivery.Quota
		text, nodes, _ := strings.Cut(text, " @")
		for _, id := range strings.Fields(text)[2:] {
			n, err := strconv.Atoi(id[1:])
			must(t, err)
			quotas = append(quotas, c.quotas[n])
		}
		campaign := campaign(rate, quotas...)
		campaign.ID, campaign.PriorityWeight = fmt.Sprintf("c%d", i), priority
		asked := ask(campaign, 300)
		c.list, c.wants = append(c.list, &waiter{node: "a", ask: asked}), append(c.wants, float64(rate))
		for k, node := range nodes {
			if k == 0 {
				c.list[i].node = string(node)
			} else {
				c.more = append(c.more, &waiter{node: string(node), ask: asked})
			}
		}
	}
	return c
}
