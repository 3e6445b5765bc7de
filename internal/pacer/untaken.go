package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// untakenAfter is how long jobs of a campaign must have been tried, and none taken, before the other daemons are told.
	untakenAfter = time.Minute
	// untakenSlack is how much later than it may go a job is tried again at the latest: its slot has to come, and a timer to be read.
	untakenSlack = time.Minute
)

// untaken is what is known of a campaign whose jobs are tried and not taken. Those that wait for their next attempts are in timers,
// where nothing counts them, and few of them open no circuit: without this, nothing would tell of a campaign of which nothing arrives.
// A job counts that is tried for the first time: jobs that fail while others arrive, and are left when these have, are their own fault.
// It is pure; all times are local ones, in microseconds. The zero value is of a campaign whose jobs are taken.
type untaken struct {
	since   int64  // when the first call began; 0: none has failed since a job was taken
	job     uint64 // of which job that was
	several bool   // others failed as well: a single one says nothing of its campaign
	first   bool   // one of them was tried for the first time; all others may be left of what another daemon had
	until   int64  // when the last of them may be tried again
}

// trial is what a call is to its campaign.
type trial uint8

const (
	again   trial = iota // of a job that has failed while others were taken: it does not count
	retried              // of a job that has failed before; others are not known to have been taken
	first                // the first one of a job
)

// failed records that a call of a job, begun at a time, has failed.
func (u *untaken) failed(job uint64, call trial, begun int64, slack time.Duration) {
	over, counts := u.since == 0 || u.over(begun, slack), call != again
	switch {
	case over && counts:
		*u = untaken{since: begun, job: job}
	case u.since == 0:
		return
	case over: // it waited for longer than for its turn, as while the campaign is paused
		u.since = begun
	case counts && u.job != job:
		u.several = true
	}
	u.first = u.first || call == first
	u.until = max(u.until, begun)
}

// waits records that a job of the campaign waits until a time.
func (u *untaken) waits(until int64) { u.until = max(u.until, until) }

// over tells whether no job is left to be tried, as far as this daemon knows.
func (u *untaken) over(now int64, slack time.Duration) bool {
	return now > u.until+slack.Microseconds()
}

// takenElsewhere records that another daemon had a job taken at a time, and knows of none that failed since. What has been tried before
// failed while those were taken.
func (u *untaken) takenElsewhere(at int64) {
	if at >= u.since || !u.first {
		*u = untaken{}
	}
}

// untakenSlackOf is untakenSlack for a campaign: the slots of a slow one are far apart.
func untakenSlackOf(c *delivery.Campaign) time.Duration {
	return max(untakenSlack, 3*time.Duration(c.Rate.Spacing())*time.Microsecond)
}

// untaken records that a call has failed. Where no daemon that runs is known to have had a job of the campaign taken, every job counts:
// those that were tried by a daemon before are as good a sign.
func (p *Pacer) untaken(x *sent) {
	q := x.queue
	switch x.result.Class {
	case delivery.Temporary, delivery.Unreachable, delivery.Misconfigured, delivery.Throttled:
	default:
		return
	}
	if q.campaign == nil {
		return
	}
	call := again
	switch {
	case x.job.Attempt == 0 && x.since >= x.begun:
		call = first
	case q.takenAt == 0 && !q.takenElsewhere && !everTaken(x.job.Account):
		call = retried
	}
	q.untaken.failed(delivery.CampaignHash(x.job.ID), call, x.begun, untakenSlackOf(q.campaign))
}

// everTaken tells whether a job of the campaign that an account is of was taken here.
func everTaken(a *delivery.Account) bool {
	return a != nil && a.Jobs(delivery.OutcomeDelivered)+a.Jobs(delivery.OutcomeRejected) > 0
}

// lastTaken is the local time when a job of the campaign was taken here, or one before that: for the daemon that has its jobs now. It is
// false if none was, or if jobs have failed since that count.
func (p *Pacer) lastTaken(campaign string, now instant) (at int64, ok bool) {
	if q := p.queues.byID[campaign]; q != nil {
		switch {
		case q.untaken.since > 0:
			return q.takenAt, q.takenAt > 0 && now.local-q.takenAt < freshFor.Microseconds()
		case q.takenAt > 0:
			return q.takenAt, true
		}
	}
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	a := p.counts.byID[campaign]
	return 0, a != nil && everTaken(&a.Account)
}

// comesBack notes when a job may be tried again that was not taken.
func (p *Pacer) comesBack(j *delivery.Job, at int64) {
	if q := p.queues.byID[j.Campaign]; q != nil && q.untaken.since > 0 {
		q.untaken.waits(at)
	}
}

// untakenNow is the trouble of a campaign whose jobs are tried and not taken; false if it has none.
func (p *Pacer) untakenNow(q *queue, now instant) (t delivery.Trouble, ok bool) {
	u := &q.untaken
	if u.since == 0 || now.local-u.since < untakenAfter.Microseconds() ||
		u.over(now.local, untakenSlackOf(q.campaign)) && q.calls.inFlight == 0 {
		return t, false
	}
	t = delivery.Trouble{Campaign: q.id, Kind: delivery.TroubleUntaken, Since: p.timeOf(u.since)}
	if !u.several {
		t.Only = u.job
	}
	return t, true
}
