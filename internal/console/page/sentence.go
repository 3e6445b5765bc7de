package page

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// sentence is a change as people say it.
type sentence struct {
	catalog.Change

	By, Verb string
	Said     []catalog.Field
	Undo     *act
}

// sentenceOf says a change of the catalog, with a button that takes it back where one form does so for the role.
func sentenceOf(c catalog.Change, state *view.State, role auth.Role) sentence {
	s := sentence{Change: c, Verb: "changed", Said: c.Fields}
	s.By, _, _ = strings.Cut(cmp.Or(c.Actor, c.Who), "@")
	s.By = cmp.Or(s.By, c.Who)
	table, operation, _ := strings.Cut(c.What, " ")
	switch operation {
	case "insert":
		s.Verb, s.Said = "created", nil
	case "delete":
		s.Verb, s.Said = "deleted", nil
	case "adjust":
		s.Verb = "corrected a count of"
	}
	switch table {
	case "quota_windows":
		s.Verb = map[string]string{"insert": "added a window to", "delete": "removed a window from"}[operation]
		s.Verb, s.Said = cmp.Or(s.Verb, "changed a window of"), c.Fields
	case "campaign_quotas":
		s.Verb = map[string]string{"insert": "linked", "delete": "unlinked"}[operation]
	case "campaigns":
		if operation == "update" {
			s.campaign(state)
		}
	case "destinations":
		for _, f := range c.Fields {
			if f.Name == "disabled_at" && operation == "update" {
				if s.Verb, s.Said = "disabled", nil; f.New == "" {
					s.Verb = "enabled"
				}
			}
		}
	}
	if s.Undo != nil && s.Undo.role > role {
		s.Undo = nil
	}
	if link := before(c); s.Undo == nil && link != "" && role >= auth.Admin {
		s.Undo = &act{Label: "Edit with the old values…", Link: link}
	}
	return s
}

func (s *sentence) campaign(state *view.State) {
	now := state.Campaign(s.Change.Campaign)
	fields := map[string]catalog.Field{}
	for _, f := range s.Fields {
		fields[f.Name] = f
	}
	if status, ok := fields["status"]; ok {
		s.Verb = map[string]string{"paused": "paused", "cancelled": "cancelled", "completed": "completed", "active": "resumed"}[status.New]
		s.Verb, s.Said = cmp.Or(s.Verb, "changed"), nil
		if until := fields["paused_until"].New; until != "" {
			s.Said = []catalog.Field{{Name: "until", New: until}}
		}
		undo := map[string]string{string(delivery.StatusPaused): "resume", string(delivery.StatusActive): "pause"}[status.New]
		if now != nil && now.Status == status.New && undo != "" {
			s.Undo = new(send(auth.Operator, "Undo", undo, s.Change.Campaign, "reason", "undo"))
		}
		return
	}
	delete(fields, "send_rate")
	delete(fields, "send_per")
	if len(s.Fields) == 0 || len(fields) > 0 {
		return
	}
	was, is := rateOf(s.OldRate), rateOf(s.NewRate)
	s.Verb, s.Said = "changed the rate of", []catalog.Field{{Old: spoken(s.OldRate), New: spoken(s.NewRate)}}
	if was < is {
		s.Verb = "raised"
	} else if was > is {
		s.Verb = "lowered"
	}
	if now != nil && rateOf(now.Rate) == is {
		s.Undo = new(send(auth.Operator, "Undo", "rate", s.Change.Campaign, "revision", fmt.Sprint(now.Revision), "rate", s.OldRate, "reason", "undo"))
	}
}

// spoken is a rate with what it is of: 500/s, 150/m.
func spoken(rate string) string {
	units, per := splitRate(rate)
	return units + "/" + per
}
