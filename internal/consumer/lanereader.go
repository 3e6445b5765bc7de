package consumer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

const (
	// laneJobs bounds the jobs that one read of a lane offers; the rest of a larger fetch is read again.
	laneJobs = 1000
	// probeEvery is how often a campaign left behind with nothing open is offered again without a grant of room, if no lane was granted any
	// for it lately. If a grant is lost, its jobs wait at most this long once the other lanes have none of them.
	probeEvery = 30 * time.Second
)

// laneReader reads one lane. It alternates between the main position and the positions of campaigns that were left
// behind and have room again.
type laneReader struct {
	reader
	idle    *broker.Poll
	recalls *atomic.Int64 // see assignment
	probe   <-chan time.Time
	saved   float64       // part of the bytes of records that their batches, which are compressed, do not take; a moving average
	named   namedCampaign // by the last record

	stopped bool    // the main reader may not go on before a campaign has finished
	full    lasting // stopped
}

// run reads until ctx ends, or the partition has to be begun anew.
func (r *laneReader) run(ctx context.Context) (anew *start) {
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	r.probe = probe.C
	anew = r.reader.run(ctx, r.turn)
	r.stopped = false
	r.logUnread(time.Now())
	return anew
}

// turn does one catch-up read and one main read, if they have work; otherwise it waits until there is some.
func (r *laneReader) turn(ctx context.Context) (worked bool, err error) {
	if err = r.src.awaitIntake(ctx, func() bool { return true }, func() {}); err != nil {
		return false, err
	}
	r.src.mu.Lock()
	select {
	case <-r.probe: // also while the lane is busy
		r.src.lane.Probe(r.src.waits)
	default:
	}
	from, bytes, behind := r.src.lane.Candidate()
	main := r.src.lane.Main()
	r.stopped = r.stopped && r.src.lane.Full()
	r.src.mu.Unlock()
	r.logUnread(time.Now())
	if behind {
		bytes = min(max(int64(float64(bytes)*(1-r.saved)), minFetchBytes), maxFetchBytes)
		if err = r.readLane(ctx, true, from, bytes); err != nil {
			return true, err
		}
	}
	if main < r.src.edge.Load() && !r.stopped {
		return true, r.readLane(ctx, false, main, maxFetchBytes)
	}
	if !behind {
		r.await(ctx)
	}
	return behind, nil
}

// await sleeps until there is data beyond main, a campaign has room, or a probe is due.
func (r *laneReader) await(ctx context.Context) {
	var data <-chan *broker.Brought
	if !r.stopped {
		wake, leave := r.idle.Park(r.src.partition, r.src.mainPosition())
		defer leave()
		data = wake
	}
	r.src.heart.rest()
	select {
	case r.brought = <-data:
		r.src.edge.Store(max(r.src.edge.Load(), r.src.mainPosition()+1)) // at least one more: read and see
	case <-r.src.wake:
	case <-r.probe:
		r.src.mu.Lock()
		r.src.lane.Probe(r.src.waits)
		r.src.mu.Unlock()
	case <-ctx.Done():
	}
}

// logUnread logs at now that the main reader stands still because too many campaigns have a backlog in this lane, and that it
// goes on.
func (r *laneReader) logUnread(now time.Time) {
	change, lasted := r.full.note(r.stopped, 0, now)
	r.src.metrics.lanesFull.Add(float64(change))
	switch log := r.opt.Logger; change {
	case 1:
		log.Warn("too many campaigns have a backlog in this lane; jobs of further campaigns in it wait until one has finished",
			"lane", r.src.String(), "offset", r.src.mainPosition())
	case -1:
		log.Info("a lane that had too many campaigns is read on", "lane", r.src.String(), "after", lasted)
	}
}

// readLane reads the lane once: on from main, for all campaigns that are not left behind, or from a position before that, for those that
// were left behind and have room. It offers the jobs that the read has collected.
func (r *laneReader) readLane(ctx context.Context, catchUp bool, from, bytes int64) error {
	v, lane := &visit{reader: r, now: time.Now(), catchUp: catchUp}, r.src.lane
	r.src.heart.rest()
	if err := r.admit(ctx, bytes); err != nil {
		return err
	}
	if catchUp {
		r.src.mu.Lock()
		lane.BeginCatchUp(from)
		r.src.mu.Unlock()
	}
	out, err := r.read(ctx, from, bytes, shortPoll, v.record)
	r.release()
	r.src.metrics.lanes.read.Add(int64(out.Records))
	if out.Bytes > 0 {
		r.saved += (max(0, 1-float64(out.Packed)/float64(out.Bytes)) - r.saved) / 8
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	r.src.mu.Lock()
	switch {
	case err == nil && catchUp:
		lane.EndCatchUp(out.Next, out.Bytes)
		r.src.changes++
	case err == nil:
		r.src.edge.Store(out.End)
		lane.Pass(out.Next)
		r.src.changes++
	case catchUp: // jobs read before a failure are registered; the rest is read again
		lane.BreakCatchUp()
	}
	r.src.mu.Unlock()
	r.stopped = r.stopped || v.stopped
	if offerErr := r.offerAll(ctx, v.jobs); offerErr != nil {
		return offerErr
	}
	return err
}

// offerAll offers the jobs. Refused ones go back to the lane, with all later ones of their campaign that are still to
// be offered, so that its order is kept.
func (r *laneReader) offerAll(ctx context.Context, jobs []*delivery.Job) error {
	refusedOf := map[string]bool{}
	for len(jobs) > 0 {
		n := min(len(jobs), offerJobs)
		piece := make([]*delivery.Job, 0, n)
		for _, j := range jobs[:n] {
			if refusedOf[j.Campaign] {
				r.src.giveBack(j.Offset, false)
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
			for _, j := range append(piece, jobs...) {
				r.src.giveBack(j.Offset, false)
			}
			return err
		}
		for _, j := range refused {
			refusedOf[j.Campaign] = true
			r.src.giveBack(j.Offset, true)
		}
		r.src.offers(false)
	}
	return nil
}

// visit collects the jobs of one read that are to be offered. All other records are skipped without being copied.
type visit struct {
	reader  *laneReader
	now     time.Time
	catchUp bool
	jobs    []*delivery.Job
	bytes   int64 // of jobs
	stopped bool  // the main reader may not go on; see laneReader
}

// record classifies one record under the lock of the lane, so that no commit sees a position beyond a record that is
// not registered yet.
func (v *visit) record(rec *delivery.Record) error {
	r := v.reader
	if len(v.jobs) >= laneJobs || v.bytes >= expansion*maxFetchBytes {
		return errEnough
	}
	hash, j := v.campaignOf(rec)
	r.src.mu.Lock()
	defer r.src.mu.Unlock()
	var verdict offset.Verdict
	switch lane := r.src.lane; {
	case !v.catchUp:
		verdict = lane.ClassifyMain(hash, rec.Offset)
	case rec.Offset >= lane.Main():
		return errEnough
	default:
		verdict = lane.ClassifyCatchUp(hash, rec.Offset)
	}
	switch verdict {
	case offset.Skip:
		if !v.catchUp && r.recalls.Load() > 0 {
			if j == nil {
				j = r.decode(rec, v.now)
			}
			r.src.repeats.Repeated(j, rec.Offset)
		}
		return nil
	case offset.Stop:
		v.stopped = !v.catchUp
		return errEnough
	}
	if j == nil {
		j = r.decode(rec, v.now)
	}
	repeat := r.src.repeats.Repeated(j, j.Offset)
	if !repeat && !r.keep(j.Size) {
		return errEnough
	}
	r.adopt(j)
	s := offset.Record{Offset: j.Offset, Size: j.Size, Weight: j.Weight, Settled: repeat}
	r.src.add(hash, s)
	if repeat {
		r.src.metrics.repeated.Inc()
		return nil
	}
	if len(v.jobs) == 0 {
		r.src.ages.note(j.Offset, j.FirstRead)
	}
	v.jobs = append(v.jobs, j)
	v.bytes += j.Size
	return nil
}

// campaignOf finds the record's campaign. Without a header for it, the whole record has to be
// decoded.
func (v *visit) campaignOf(rec *delivery.Record) (hash uint64, j *delivery.Job) {
	for _, h := range slices.Backward(rec.Headers) { // the last counts
		if h.Key == delivery.HeaderCampaign {
			return v.reader.named.hashOf(h.Value), nil
		}
	}
	j = v.reader.decode(rec, v.now)
	return delivery.CampaignHash(j.Campaign), j
}

// namedCampaign is a campaign as a header names it, and its hash. Most records of a lane are of the campaign of the one before. The
// zero value is ready.
type namedCampaign struct {
	id   string
	hash uint64
}

// hashOf returns the hash of the campaign that record.Decode would find in the header; that of "" for one that it would not accept.
func (c *namedCampaign) hashOf(header []byte) uint64 {
	if string(header) == c.id && c.id != "" {
		return c.hash
	}
	if c.id = string(header); !delivery.ValidCampaign(c.id) {
		c.id = ""
	}
	c.hash = delivery.CampaignHash(c.id)
	return c.hash
}
