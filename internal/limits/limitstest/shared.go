package limitstest

import (
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/contention"
	"github.com/pacer/pacer/internal/limits/model"
)

// Shared is the model as daemons use it: behind the contentions of each, as engines have them in front of the scripts.
type Shared struct {
	*model.Store
	daemons map[string]*contention.Quotas
}

// NewShared returns an empty store.
func NewShared() *Shared {
	return &Shared{Store: model.NewStore(), daemons: map[string]*contention.Quotas{}}
}

// Take is one take of a daemon.
func (s *Shared) Take(now int64, node string, asks []delivery.Ask) delivery.TakeReply {
	if s.daemons[node] == nil {
		s.daemons[node] = &contention.Quotas{}
	}
	reply := delivery.TakeReply{Items: make([]delivery.Granted, len(asks))}
	list := make([]*contention.Contender, len(asks))
	for i := range asks {
		list[i] = &contention.Contender{Own: &asks[i], Out: &reply.Items[i]}
	}
	s.daemons[node].Run(list, now, delivery.Provenance{}, func(wave []*contention.Contender) {
		own := make([]delivery.Ask, len(wave))
		for i, x := range wave {
			own[i] = *x.Own
		}
		answer := s.Store.Take(now, node, own)
		reply.Clocks = answer.Clocks
		for i, g := range answer.Items {
			*wave[i].Out = g
		}
	})
	return reply
}

// RefundOf is a refund that a daemon makes itself. Of others' it hears nothing.
func (s *Shared) RefundOf(node string, now int64, grants []delivery.Grant) {
	for i := range grants {
		if d := s.daemons[node]; d != nil {
			d.Returned(grants[i].From.Campaign)
		}
	}
	s.Refund(now, grants)
}
