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
	holds   []note // what holds campaigns; of the leader only

	// How sinks answer it; absent in the parts of earlier releases.
	asks  []uint64 // campaigns of which others may know better
	taken []seen   // campaigns whose jobs were taken
	works []seen   // sinks that work

	// Absent in those of releases that did not tell it.
	untried []seen // sinks that take no jobs, while some wait that have not been tried
	inHand  []sent // jobs that sinks have been given and have not answered
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

// sent is the number of units of a campaign that a daemon has sent since it started.
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
	b := []byte{partVersion}
	number := func(n int64) { b = binary.AppendUvarint(b, uint64(max(n, 0))) }
	hash := func(h uint64) { b = binary.BigEndian.AppendUint64(b, h) }
	number(p.started)
	number(p.late.jobs)
	number(int64(p.lanes.Generation))
	lanes := p.lanes.Lanes[:min(len(p.lanes.Lanes), maxPartEntries)]
	number(int64(len(lanes)))
	for _, l := range lanes {
		number(int64(l.Lane))
		waiting := l.Waiting[:min(len(l.Waiting), maxPartEntries)]
		number(int64(len(waiting)))
		for _, w := range waiting {
			hash(w.Campaign)
			number(w.Jobs)
		}
	}
	holds := p.held[:min(len(p.held), maxPartEntries)]
	number(int64(len(holds)))
	for _, h := range holds {
		hash(h.campaign)
		number(h.direct)
		number(h.jobs)
		number(h.units)
	}
	sends := p.sent[:min(len(p.sent), maxPartEntries)]
	number(int64(len(sends)))
	for _, s := range sends {
		hash(s.campaign)
		number(s.units)
	}
	for _, notes := range [][]note{p.stuck, p.holds} {
		notes = notes[:min(len(notes), maxPartEntries)]
		number(int64(len(notes)))
		for _, n := range notes {
			hash(n.campaign)
			number(int64(slices.Index(hold.Causes, n.cause)))
			number(n.since)
			hash(n.by)
		}
	}
	number(p.late.barred)
	asks := p.asks[:min(len(p.asks), maxAnswers)]
	number(int64(len(asks)))
	for _, a := range asks {
		hash(a)
	}
	for _, list := range [][]seen{p.taken, p.works, p.untried} {
		list = list[:min(len(list), maxAnswers)]
		number(int64(len(list)))
		for _, s := range list {
			hash(s.hash)
			number(s.ago)
		}
	}
	inHand := p.inHand[:min(len(p.inHand), maxPartEntries)]
	number(int64(len(inHand)))
	for _, s := range inHand {
		hash(s.campaign)
		number(s.units)
	}
	unread := p.lanes.Held[:min(len(p.lanes.Held), maxPartEntries)]
	number(int64(len(unread)))
	for _, lane := range unread {
		number(int64(lane))
	}
	return b
}

var errForeignPart = errors.New("not a part of this version of pacer")

// decodePart reads the output of encode.
func decodePart(b []byte) (*part, error) {
	if len(b) == 0 || b[0] != partVersion && b[0] != oldPartVersion {
		return nil, errForeignPart
	}
	d := &partDecoder{b: b[1:]}
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
	for range d.length() {
		p.sent = append(p.sent, sent{d.hash(), d.number()})
	}
	if b[0] == oldPartVersion {
		d.broken = d.broken || len(d.b) > 0
	} else {
		p.stuck, p.holds = d.notes(), d.notes()
		if len(d.b) > 0 { // otherwise written by a release that did not tell the causes of lateness
			p.late.barred = min(d.number(), p.late.jobs)
		}
		if len(d.b) > 0 {
			p.asks, p.taken, p.works = d.hashes(), d.seen(), d.seen()
		}
		if len(d.b) > 0 {
			p.untried = d.seen()
			for range d.length() {
				p.inHand = append(p.inHand, sent{d.hash(), d.number()})
			}
			for range d.length() {
				p.lanes.Held = append(p.lanes.Held, int(d.number()))
			}
		}
	}
	if d.broken {
		return nil, errForeignPart
	}
	return p, nil
}

// partDecoder decodes a part; after the first error it returns zeros.
type partDecoder struct {
	b      []byte
	broken bool
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
	if n > int64(len(d.b)) || n > maxPartEntries {
		d.broken, d.b = true, nil
		return 0
	}
	return n
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
