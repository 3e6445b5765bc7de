package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// laneJobs bounds the jobs that one read of a lane hands over; a fetch that holds more is read again from there.
	laneJobs = 1000
	// probeEvery is how often campaigns left behind are tried without having been granted room: should a grant ever
	// get lost, their jobs wait this long and no longer.
	probeEvery = 30 * time.Second
)

// laneReader reads one lane: by turns the main position, and the positions of campaigns that were left behind and have
// room again.
type laneReader struct {
	*shared
	src     *laneSource
	idle    *idlePoll
	repeats *repeats

	stopped bool // the main reader may not go on before a campaign has finished
}

// run reads until ctx ends.
func (r *laneReader) run(ctx context.Context) {
	defer r.health.forget(r.src.String())
	defer r.repeats.forget()
	var wait backoff
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for ctx.Err() == nil {
		if r.awaitCommits(ctx) != nil {
			return
		}
		select {
		case <-probe.C: // also while the lane is busy
			r.src.mu.Lock()
			r.src.lane.probe()
			r.src.mu.Unlock()
		default:
		}
		worked, err := r.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if r.failed(ctx, r.src.partition, err, &wait, r.reset) != nil {
				return
			}
		case worked:
			wait.reset()
		default:
			r.await(ctx, probe.C)
		}
	}
}

// turn does one catch-up read and one main read, where there is something for them.
func (r *laneReader) turn(ctx context.Context) (worked bool, err error) {
	r.src.mu.Lock()
	from, bytes, behind := r.src.lane.candidate()
	main := r.src.lane.main
	r.stopped = r.stopped && len(r.src.lane.campaigns) >= maxLaneCampaigns
	r.src.mu.Unlock()
	if behind {
		if err = r.catchUp(ctx, from, min(max(bytes, minFetchBytes), maxFetchBytes)); err != nil {
			return true, err
		}
	}
	if main >= r.src.end.Load() || r.stopped {
		return behind, nil
	}
	return true, r.readMain(ctx, main)
}

// await sleeps until there is data beyond main, a campaign has room, or it is time to try without.
func (r *laneReader) await(ctx context.Context, probe <-chan time.Time) {
	var data <-chan struct{}
	if !r.stopped {
		wake, leave := r.idle.park(r.src.partition, r.src.mainPosition())
		defer leave()
		data = wake
	}
	select {
	case <-data:
		r.src.end.Store(max(r.src.end.Load(), r.src.mainPosition()+1)) // at least one more: read and see
	case <-r.src.wake:
	case <-probe:
		r.src.mu.Lock()
		r.src.lane.probe()
		r.src.mu.Unlock()
	case <-ctx.Done():
	}
}

// awaitCommits waits until commits keep up.
func (r *laneReader) awaitCommits(ctx context.Context) error {
	for {
		ok, moved := r.src.admits()
		if ok {
			return ctx.Err()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errEnough ends a fetch of which enough was taken.
var errEnough = errors.New("enough was read")

// readMain reads on from main: every campaign that is not left behind.
func (r *laneReader) readMain(ctx context.Context, main int64) error {
	if err := r.budget.acquire(ctx, maxFetchBytes, true); err != nil {
		return err
	}
	defer r.budget.charge(-maxFetchBytes, true)
	p := &pick{reader: r, now: time.Now(), verdict: (*lane).meet}
	out, err := r.read(ctx, fetchRequest{
		partition: r.src.partition, offset: main, maxBytes: maxFetchBytes, maxWait: shortPoll,
	}, delivery.FromLane, p.visit)
	r.metrics.laneRead.Add(int64(out.records))
	r.stopped = p.stopped
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil {
		r.src.end.Store(out.end)
		r.src.mu.Lock()
		r.src.lane.pass(out.next)
		r.src.changes++
		r.src.mu.Unlock()
	}
	if offerErr := r.offerAll(ctx, p.jobs); offerErr != nil {
		return offerErr
	}
	return err
}

// catchUp reads from a position before main: the campaigns that were left behind and have room.
func (r *laneReader) catchUp(ctx context.Context, from, bytes int64) error {
	if err := r.budget.acquire(ctx, bytes, true); err != nil {
		return err
	}
	defer r.budget.charge(-bytes, true)
	r.src.mu.Lock()
	r.src.lane.beginCatchUp(from)
	r.src.mu.Unlock()
	p := &pick{reader: r, now: time.Now(), verdict: (*lane).revisit, catchUp: true}
	out, err := r.read(ctx, fetchRequest{
		partition: r.src.partition, offset: from, maxBytes: bytes, maxWait: shortPoll,
	}, delivery.FromLane, p.visit)
	r.metrics.laneRead.Add(int64(out.records))
	if errors.Is(err, errEnough) {
		err = nil
	}
	r.src.mu.Lock()
	if err == nil {
		r.src.lane.endCatchUp(out.next, out.bytes)
		r.src.changes++
	} else { // what was read before a failure is registered; the rest is read again
		r.src.lane.breakCatchUp()
	}
	r.src.mu.Unlock()
	if offerErr := r.offerAll(ctx, p.jobs); offerErr != nil {
		return offerErr
	}
	return err
}

// offerAll hands the jobs over. Refused ones go back to the lane, with all later ones of their campaign that are still
// to be offered, so that its order is kept.
func (r *laneReader) offerAll(ctx context.Context, jobs []*delivery.Job) error {
	refusedOf := map[string]bool{}
	for len(jobs) > 0 {
		n := min(len(jobs), offerJobs)
		piece := make([]*delivery.Job, 0, n)
		for _, j := range jobs[:n] {
			if refusedOf[j.Campaign] {
				r.src.withheld(j.Offset)
			} else {
				piece = append(piece, j)
			}
		}
		jobs = jobs[n:]
		if len(piece) == 0 {
			continue
		}
		r.src.offers(true)
		refused, err := r.offer(ctx, piece)
		if err != nil {
			return err
		}
		for _, j := range refused {
			refusedOf[j.Campaign] = true
			r.src.refused(j.Offset)
		}
		r.src.offers(false)
	}
	return nil
}

// reset deals with a log that does not hold a position any more.
func (r *laneReader) reset(first, end int64) {
	r.src.mu.Lock()
	defer r.src.mu.Unlock()
	l := r.src.lane
	wanted := l.committed()
	switch {
	case l.main > end && len(l.at) > 0:
		return // a job still open must not be taken for a new one with its offset: wait
	case l.main > end: // the topic was made anew: positions mean nothing
		r.src.lane = newLane(lanePositions{main: first})
		r.src.end.Store(first)
	case !l.raise(first):
		return // the log has moved since
	}
	r.outOfRange(r.src.partition, wanted, first, end)
	r.src.changes++
}

// pick collects the jobs of one read whose turn it is. The records of all others are passed over without being copied.
type pick struct {
	reader  *laneReader
	now     time.Time
	verdict func(*lane, uint64, int64) verdict
	catchUp bool
	jobs    []*delivery.Job
	stopped bool
}

// visit judges one record under the lock of the lane, so that no commit sees a position beyond a record that is not
// registered yet.
func (p *pick) visit(rec *protocol.Record) error {
	r := p.reader
	if len(p.jobs) >= laneJobs {
		return errEnough
	}
	hash, full, err := p.campaignOf(rec)
	if err != nil {
		return err
	}
	r.src.mu.Lock()
	defer r.src.mu.Unlock()
	if p.catchUp && rec.Offset >= r.src.lane.main {
		return errEnough
	}
	switch p.verdict(r.src.lane, hash, rec.Offset) {
	case skip:
		return nil
	case stop:
		p.stopped = true
		return errEnough
	}
	if full == nil {
		if full, err = copyRecord(r.src.partition, rec); err != nil {
			return err
		}
	}
	j := r.job(full, delivery.FromLane, r.src, p.now)
	repeat := r.repeats.repeated(j, j.Offset)
	s := laneSlot{offset: j.Offset, size: j.Size, weight: j.Weight, done: repeat}
	r.src.addSlot(hash, j.Campaign, s)
	if repeat {
		r.metrics.repeated.Inc()
		return nil
	}
	r.src.visited(hash, j.Campaign)
	p.jobs = append(p.jobs, j)
	return nil
}

// campaignOf finds the record's campaign. Where no header says it, the whole record has to be read.
func (p *pick) campaignOf(rec *protocol.Record) (hash uint64, full *record, err error) {
	if id, ok := headerCampaign(rec.Headers); ok {
		return campaignHash(id), nil, nil
	}
	if full, err = copyRecord(p.reader.src.partition, rec); err != nil {
		return 0, nil, err
	}
	return campaignHash(decode(full, delivery.FromLane, p.reader.maxWeight, p.now).Campaign), full, nil
}

// headerCampaign is the campaign that decode would find in the headers; "" for one that it would not accept.
func headerCampaign(headers []kafka.Header) (id string, ok bool) {
	for _, h := range headers {
		if h.Key == delivery.HeaderCampaign {
			id, ok = string(h.Value), true
		}
	}
	if !delivery.ValidID(id) {
		id = ""
	}
	return id, ok
}
