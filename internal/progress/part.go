package progress

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// part is the knowledge of one daemon. It identifies campaigns by their hashes.
type part struct {
	started int64    // start of the daemon, microseconds since the Unix epoch by its own clock
	late    lateness // as computed by this daemon
	lanes   delivery.LanesBacklog
	held    []held
	sent    []sent
	stuck   []note // what this daemon found out about campaigns
	holds   []note // what holds campaigns; in summaries only

	// How sinks answer it; absent in the parts of earlier releases, and in summaries, which have sayings.
	asks  []uint64 // campaigns of which others may know better
	taken []seen   // campaigns whose jobs were taken
	works []seen   // sinks that work

	// Absent in those of releases that did not tell it.
	untried []seen       // sinks that take no jobs, while some wait that have not been tried
	inHand  []sent       // jobs that sinks have been given and have not answered
	nodes   []Node       // the daemon itself; in summaries all that run
	early   []sent       // jobs in memory whose time has not come
	sinks   []SinkReport // with reports of nodes
	denied  []sent       // asks that windows of quotas reduced or denied, by windowHash; of a daemon since it started; nil: not told
	turns   []sent       // when the rate next allows a job, in microseconds since the Unix epoch; not of campaigns where that is soon
}

// seen is when something was last seen.
type seen struct {
	hash uint64
	ago  int64 // milliseconds, when the part was made
}

// held is the content of one daemon's memory for a campaign.
type held struct {
	campaign uint64
	direct   int64 // jobs that are in no lane
	jobs     int64 // all jobs, for their mean weight
	units    int64
}

// sent is the number of units of a campaign that a daemon has sent since it started, or another number about a campaign or a window.
type sent struct {
	campaign uint64
	units    int64
}

// note is what a daemon says of a campaign.
type note struct {
	campaign uint64
	cause    hold.Cause
	since    int64  // microseconds since the Unix epoch
	by       uint64 // the campaign in the way; 0 for none
}

const (
	// partVersion is that of the parts that are written. Those of version 1, which end before the notes, are read too; what a
	// later release appends is skipped.
	partVersion    = 2
	oldPartVersion = 1
	// maxPartEntries bounds each list of a part; a daemon with more active campaigns leaves some out.
	maxPartEntries = 50_000
	// maxAnswers bounds the lists of what sinks answer.
	maxAnswers = 1000
)

// encode packs the part: the version, then uvarints, each list after its length, hashes as 8 bytes.
func (p *part) encode() []byte {
	e := &partEncoder{most: maxPartEntries}
	e.part(p)
	return e.b
}

// partEncoder encodes parts and summaries.
type partEncoder struct {
	b    []byte
	most int // entries of each list
}

func (e *partEncoder) number(n int64) { e.b = binary.AppendUvarint(e.b, uint64(max(n, 0))) }
func (e *partEncoder) hash(h uint64)  { e.b = binary.BigEndian.AppendUint64(e.b, h) }

// first returns the first entries of a list, at most n.
func first[T any](list []T, n int) []T { return list[:min(len(list), n)] }

func (e *partEncoder) part(p *part) {
	e.b = append(e.b, partVersion)
	e.number(p.started)
	e.number(p.late.jobs)
	e.number(int64(p.lanes.Generation))
	lanes := first(p.lanes.Lanes, e.most)
	e.number(int64(len(lanes)))
	for _, l := range lanes {
		e.number(int64(l.Lane))
		waiting := first(l.Waiting, e.most)
		e.number(int64(len(waiting)))
		for _, w := range waiting {
			e.hash(w.Campaign)
			e.number(w.Jobs)
		}
	}
	holds := first(p.held, e.most)
	e.number(int64(len(holds)))
	for _, h := range holds {
		e.hash(h.campaign)
		e.number(h.direct)
		e.number(h.jobs)
		e.number(h.units)
	}
	e.counts(p.sent)
	e.notes(p.stuck)
	e.notes(p.holds)
	e.number(p.late.destination)
	asks := first(p.asks, maxAnswers)
	e.number(int64(len(asks)))
	for _, a := range asks {
		e.hash(a)
	}
	for _, list := range [][]seen{p.taken, p.works, p.untried} {
		list = first(list, maxAnswers)
		e.number(int64(len(list)))
		for _, s := range list {
			e.hash(s.hash)
			e.number(s.ago)
		}
	}
	e.counts(p.inHand)
	e.ints(p.lanes.Held)
	e.nodes(p.nodes)
	e.counts(p.early)
	e.reports(p.sinks, p.nodes)
	e.counts(p.denied)
	e.kafka(p.nodes)
	e.counts(p.turns)
	e.failures(p.sinks)
}

func (e *partEncoder) counts(list []sent) {
	list = first(list, e.most)
	e.number(int64(len(list)))
	for _, s := range list {
		e.hash(s.campaign)
		e.number(s.units)
	}
}

func (e *partEncoder) notes(list []note) {
	list = first(list, e.most)
	e.number(int64(len(list)))
	for _, n := range list {
		e.hash(n.campaign)
		e.number(int64(slices.Index(hold.Causes, n.cause)))
		e.number(n.since)
		e.hash(n.by)
	}
}

func (e *partEncoder) ints(list []int) {
	list = first(list, e.most)
	e.number(int64(len(list)))
	for _, n := range list {
		e.number(int64(n))
	}
}

var errForeignPart = errors.New("not a part of this version of pacer")

// decodePart reads the output of encode.
func decodePart(b []byte) (*part, error) { return (&partDecoder{b: b, most: maxPartEntries}).part() }

// partDecoder decodes parts and summaries; after the first error it returns zeros.
type partDecoder struct {
	b      []byte
	most   int64 // entries of each list
	broken bool
}

// part reads a part, to the end.
func (d *partDecoder) part() (*part, error) {
	if d.broken || len(d.b) == 0 || d.b[0] != partVersion && d.b[0] != oldPartVersion {
		return nil, errForeignPart
	}
	version := d.b[0]
	d.b = d.b[1:]
	p := &part{started: d.number(), late: lateness{jobs: d.number()}, lanes: delivery.LanesBacklog{Generation: int32(d.number())}}
	for range d.length() {
		l := delivery.LaneBacklog{Lane: int(d.number())}
		for range d.length() {
			l.Waiting = append(l.Waiting, delivery.CampaignCount{Campaign: d.hash(), Jobs: d.number()})
		}
		p.lanes.Lanes = append(p.lanes.Lanes, l)
	}
	for range d.length() {
		p.held = append(p.held, held{d.hash(), d.number(), d.number(), d.number()})
	}
	p.sent = d.counts()
	if version == oldPartVersion {
		d.broken = d.broken || len(d.b) > 0
	} else {
		p.stuck, p.holds = d.notes(), d.notes()
		if len(d.b) > 0 { // otherwise written by a release that did not tell the causes of lateness
			p.late.destination = min(d.number(), p.late.jobs)
		}
		if len(d.b) > 0 {
			p.asks, p.taken, p.works = d.hashes(), d.seen(), d.seen()
		}
		if len(d.b) > 0 {
			p.untried, p.inHand, p.lanes.Held = d.seen(), d.counts(), d.ints()
		}
		if len(d.b) > 0 {
			p.nodes = d.nodes()
		}
		if len(d.b) > 0 {
			p.early = d.counts()
		}
		if len(d.b) > 0 {
			p.sinks = d.reports(p.nodes)
		}
		if len(d.b) > 0 {
			p.denied = append([]sent{}, d.counts()...) // none is not what is not told
		}
		if len(d.b) > 0 {
			d.kafka(p.nodes)
		}
		if len(d.b) > 0 {
			p.turns = d.counts()
		}
		if len(d.b) > 0 {
			d.failures(p.sinks)
		}
	}
	if d.broken {
		return nil, errForeignPart
	}
	return p, nil
}

func (d *partDecoder) number() int64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > 1<<62 {
		d.broken, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

// length reads the length of a list, whose entries take at least a byte each.
func (d *partDecoder) length() int64 {
	n := d.number()
	if n > int64(len(d.b)) || n > d.most {
		d.broken, d.b = true, nil
		return 0
	}
	return n
}

func (d *partDecoder) counts() (list []sent) {
	for range d.length() {
		list = append(list, sent{d.hash(), d.number()})
	}
	return list
}

func (d *partDecoder) ints() (list []int) {
	for range d.length() {
		list = append(list, int(d.number()))
	}
	return list
}

// notes reads a list of notes; those with a cause that this release does not know are left out.
func (d *partDecoder) notes() (list []note) {
	for range d.length() {
		n, cause := note{campaign: d.hash()}, d.number()
		n.since, n.by = d.number(), d.hash()
		if cause < int64(len(hold.Causes)) {
			n.cause = hold.Causes[cause]
			list = append(list, n)
		}
	}
	return list
}

func (d *partDecoder) hashes() (list []uint64) {
	for range d.length() {
		list = append(list, d.hash())
	}
	return list
}

func (d *partDecoder) seen() (list []seen) {
	for range d.length() {
		list = append(list, seen{d.hash(), d.number()})
	}
	return list
}

func (d *partDecoder) hash() uint64 {
	if len(d.b) < 8 {
		d.broken, d.b = true, nil
		return 0
	}
	h := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return h
}
