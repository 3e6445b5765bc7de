package progress

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/metric"
)

const (
	// partVersion and summaryVersion are the first bytes of parts and summaries. Whatever changes the bytes changes them.
	partVersion    = 1
	summaryVersion = 1
	// maxPartEntries bounds each list of a part; a daemon with more active campaigns leaves some out.
	maxPartEntries = 50_000
	// maxSummaryEntries bounds each list of a summary: daemons may have different campaigns.
	maxSummaryEntries = 4 * maxPartEntries
	// maxNodes bounds the nodes of a summary, and maxText each text, in bytes.
	maxNodes = maxParts
	maxText  = 200
	// longestTold bounds durations.
	longestTold = 24 * time.Hour
)

var errForeign = errors.New("it is not of this version of pacer, or damaged")

// codec writes or reads parts and summaries: each method does the one or the other with what it is given. Numbers are uvarints,
// hashes 8 bytes, lists and texts follow their length. After the first error it reads zeros.
type codec struct {
	b      []byte
	reads  bool
	most   int // entries of each list
	broken bool
}

// encode packs the part.
func (p *part) encode() []byte {
	c := &codec{most: maxPartEntries}
	c.part(p)
	return c.b
}

// decodePart reads the output of encode.
func decodePart(b []byte) (*part, error) {
	c, p := &codec{b: b, reads: true, most: maxPartEntries}, &part{}
	c.part(p)
	return p, c.end()
}

// encode packs the summary.
func (s *summary) encode() []byte {
	c := &codec{most: maxSummaryEntries}
	c.summary(s)
	return c.b
}

// decodeSummary reads the output of encode.
func decodeSummary(b []byte) (*summary, error) {
	c, s := &codec{b: b, reads: true, most: maxSummaryEntries}, &summary{}
	c.summary(s)
	return s, c.end()
}

func (c *codec) part(p *part) {
	c.version(partVersion)
	c.numbers(&p.late.jobs, &p.late.destination)
	number(c, &p.lanes.Generation)
	list(c, &p.lanes.Lanes, c.most, func(l *delivery.LaneBacklog) {
		number(c, &l.Lane)
		list(c, &l.Waiting, c.most, func(w *delivery.CampaignCount) {
			c.hash(&w.Campaign)
			number(c, &w.Jobs)
		})
	})
	list(c, &p.lanes.Unreadable, c.most, func(lane *int) { number(c, lane) })
	list(c, &p.held, c.most, func(h *heldCampaign) {
		c.hash(&h.campaign)
		c.numbers(&h.direct, &h.jobs, &h.units)
	})
	c.counts(&p.sent)
	c.notes(&p.stuck)
	c.notes(&p.holds)
	c.counts(&p.inHand)
	c.counts(&p.early)
	c.counts(&p.denied)
	c.counts(&p.turns)
	list(c, &p.sinks, maxSinks, c.sink)
	list(c, &p.nodes, maxNodes, c.node)
}

func (c *codec) summary(s *summary) {
	c.version(summaryVersion)
	number(c, &s.daemons)
	list(c, &s.silent, c.most, func(lane *int) { number(c, lane) })
	c.part(&s.part)
}

func (c *codec) counts(l *[]sent) {
	list(c, l, c.most, func(s *sent) {
		c.hash(&s.campaign)
		number(c, &s.units)
	})
}

func (c *codec) notes(l *[]note) {
	list(c, l, c.most, func(n *note) {
		cause := slices.Index(hold.Causes, n.cause)
		c.hash(&n.campaign)
		number(c, &cause)
		number(c, &n.since)
		c.hash(&n.by)
		if c.check(cause < len(hold.Causes)) {
			n.cause = hold.Causes[max(cause, 0)]
		}
	})
}

func (c *codec) node(n *Node) {
	for _, text := range []*string{&n.Name, &n.Host, &n.Address, &n.Version, &n.State} {
		c.text(text)
	}
	c.time(&n.Started)
	c.time(&n.KafkaAway)
	c.flag(&n.Ready)
	number(c, &n.Lanes)
	c.numbers(&n.Revision, &n.InFlight, &n.Queued)
	r := &n.Report
	for _, count := range []*int{&r.Ingress, &r.Timers, &r.Stalled} {
		number(c, count)
	}
	c.numbers(&r.Buffered, &r.BufferMost, &r.Used)
	for _, d := range []*time.Duration{&r.Quantum, &r.Late50, &r.Late99} {
		c.duration(d)
	}
	c.thousandths(&r.Forfeited)
	list(c, &r.Sinks, maxSinks, func(s *SinkCalls) {
		c.text(&s.Sink)
		c.numbers(&s.InFlight, &s.Most)
	})
}

func (c *codec) sink(s *SinkReport) {
	c.text(&s.Sink)
	number(c, &s.Daemons)
	c.numbers(&s.InFlight, &s.Most)
	for class := range s.Answers {
		c.thousandths(&s.Answers[class])
	}
	c.cells(&s.Took)
	c.text(&s.Failure.Detail)
	c.time(&s.Failure.At)
}

// cells are those of a histogram that have counted something.
func (c *codec) cells(counts *metric.Counts) {
	type cell struct {
		at int
		n  uint64
	}
	var filled []cell
	for at, n := range counts {
		if n > 0 {
			filled = append(filled, cell{at, n})
		}
	}
	list(c, &filled, len(counts), func(one *cell) {
		number(c, &one.at)
		number(c, &one.n)
		if c.check(one.at < len(counts)) {
			counts[one.at] = min(one.n, math.MaxUint32) // sums of those of all daemons still fit
		}
	})
}

// list is a list of at most so many entries.
func list[T any](c *codec, l *[]T, most int, entry func(*T)) {
	n := min(len(*l), most)
	number(c, &n)
	if !c.reads {
		for i := range n {
			entry(&(*l)[i])
		}
		return
	}
	if !c.check(n <= most && n <= len(c.b)) { // an entry takes at least a byte
		return
	}
	for i := 0; i < n && !c.broken; i++ {
		var one T
		*l = append(*l, one)
		entry(&(*l)[i])
	}
}

// check reports whether something was read that satisfies a condition; what does not is broken.
func (c *codec) check(ok bool) bool {
	if c.reads && !ok {
		c.broken, c.b = true, nil
	}
	return c.reads && !c.broken
}

func (c *codec) version(v byte) {
	if !c.reads {
		c.b = append(c.b, v)
	} else if c.check(len(c.b) > 0 && c.b[0] == v) {
		c.b = c.b[1:]
	}
}

// end is the error of what was read.
func (c *codec) end() error {
	if c.check(len(c.b) == 0) {
		return nil
	}
	return errForeign
}

// number is a number from 0 to 2^62; a negative one is written as 0.
func number[T ~int | ~int32 | ~int64 | ~uint64 | ~byte](c *codec, p *T) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, uint64(max(*p, 0)))
		return
	}
	v, n := binary.Uvarint(c.b)
	if is := T(v); c.check(n > 0 && v <= 1<<62 && is >= 0 && uint64(is) == v) {
		*p, c.b = is, c.b[n:]
	}
}

func (c *codec) numbers(list ...*int64) {
	for _, p := range list {
		number(c, p)
	}
}

func (c *codec) hash(h *uint64) {
	if !c.reads {
		c.b = binary.BigEndian.AppendUint64(c.b, *h)
	} else if c.check(len(c.b) >= 8) {
		*h, c.b = binary.BigEndian.Uint64(c.b), c.b[8:]
	}
}

func (c *codec) text(s *string) {
	n := min(len(*s), maxText)
	number(c, &n)
	if !c.reads {
		c.b = append(c.b, (*s)[:n]...)
	} else if c.check(n <= maxText && n <= len(c.b)) {
		*s, c.b = string(c.b[:n]), c.b[n:]
	}
}

func (c *codec) flag(f *bool) {
	n := 0
	if *f {
		n = 1
	}
	number(c, &n)
	if c.reads {
		*f = n > 0
	}
}

// time is a time in microseconds; the zero time is 0.
func (c *codec) time(t *time.Time) {
	n := t.UnixMicro()
	number(c, &n)
	if c.reads && n > 0 {
		*t = time.UnixMicro(n)
	}
}

// duration is one in microseconds.
func (c *codec) duration(d *time.Duration) {
	n := d.Microseconds()
	number(c, &n)
	if c.reads {
		*d = time.Duration(min(n, longestTold.Microseconds())) * time.Microsecond
	}
}

// thousandths is a number with three decimals.
func (c *codec) thousandths(f *float64) {
	n := int64(math.Round(1000 * *f))
	number(c, &n)
	if c.reads {
		*f = float64(n) / 1000
	}
}
