package progress

import (
	"encoding/binary"
	"errors"

	"github.com/pacer/pacer/internal/delivery"
)

// part is what one daemon knows. All campaigns are known by their hashes.
type part struct {
	started int64 // of the daemon, microseconds since the epoch by its own clock
	late    int64 // actionable lag as this daemon has it
	lanes   delivery.LanesBacklog
	held    []held
	sent    []sent
}

// held is what one daemon's memory holds of a campaign.
type held struct {
	campaign uint64
	direct   int64 // jobs that are in no lane
	jobs     int64 // all jobs, for their mean weight
	units    int64
}

// sent is how many units of a campaign a daemon has sent since it started.
type sent struct {
	campaign uint64
	units    int64
}

const (
	partVersion = 1
	// maxPartEntries bounds each list of a part: a daemon with more campaigns than that at work leaves some out.
	maxPartEntries = 50_000
)

// encode packs the part: version, then uvarints, each list after its length, hashes as 8 bytes.
func (p *part) encode() []byte {
	b := []byte{partVersion}
	number := func(n int64) { b = binary.AppendUvarint(b, uint64(max(n, 0))) }
	hash := func(h uint64) { b = binary.BigEndian.AppendUint64(b, h) }
	number(p.started)
	number(p.late)
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
	return b
}

var errForeignPart = errors.New("not a part of this version of pacer")

// decodePart reads what encode wrote.
func decodePart(b []byte) (*part, error) {
	if len(b) == 0 || b[0] != partVersion {
		return nil, errForeignPart
	}
	d := &partDecoder{b: b[1:]}
	p := &part{started: d.number(), late: d.number(), lanes: delivery.LanesBacklog{Generation: int32(d.number())}}
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
	if d.broken || len(d.b) > 0 {
		return nil, errForeignPart
	}
	return p, nil
}

// partDecoder reads a part; once it is broken everything is zero.
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

// length is that of a list, whose entries take a byte each at least.
func (d *partDecoder) length() int64 {
	n := d.number()
	if n > int64(len(d.b)) || n > maxPartEntries {
		d.broken, d.b = true, nil
		return 0
	}
	return n
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
