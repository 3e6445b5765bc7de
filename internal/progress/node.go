package progress

import "time"

// Node is a daemon, as it describes itself to those who look at the fleet.
type Node struct {
	Name     string // unique
	Host     string
	Address  string // of its HTTP server; "" for none
	Version  string
	Started  time.Time
	Ready    bool
	State    string // why it is not ready, or what is wrong although it is
	Revision int64  // of the catalog in force
	Lanes    int    // that it reads
	InFlight int64  // jobs that sinks have not answered yet
	Queued   int64  // jobs in memory
	// KafkaAway is since when the daemon reads nothing since no broker answers it; zero: it reads, or does not tell.
	KafkaAway time.Time
	Report    *Report // nil: the daemon, or the one that leads, is of a version that does not tell it
}

const (
	// maxNodes bounds the nodes of a summary, and maxNodeText each of their texts, in bytes.
	maxNodes    = maxParts
	maxNodeText = 200
)

func (e *partEncoder) text(s string) {
	s = s[:min(len(s), maxNodeText)]
	e.number(int64(len(s)))
	e.b = append(e.b, s...)
}

func (e *partEncoder) nodes(list []Node) {
	list = first(list, maxNodes)
	e.number(int64(len(list)))
	for i := range list {
		n := &list[i]
		for _, s := range []string{n.Name, n.Host, n.Address, n.Version, n.State} {
			e.text(s)
		}
		ready := int64(0)
		if n.Ready {
			ready = 1
		}
		for _, number := range []int64{n.Started.UnixMicro(), ready, n.Revision, int64(n.Lanes), n.InFlight, n.Queued} {
			e.number(number)
		}
	}
}

// kafka encodes since when each of the nodes that were encoded before waits for Kafka, 0 for those that do not.
func (e *partEncoder) kafka(nodes []Node) {
	for i := range first(nodes, maxNodes) {
		e.number(max(0, nodes[i].KafkaAway.UnixMicro()))
	}
}

// kafka decodes since when nodes wait for Kafka.
func (d *partDecoder) kafka(nodes []Node) {
	for i := range nodes {
		if since := d.number(); since > 0 {
			nodes[i].KafkaAway = time.UnixMicro(since)
		}
	}
}

func (d *partDecoder) text() string {
	n := d.length()
	if n > maxNodeText {
		d.broken, d.b = true, nil
		return ""
	}
	s := string(d.b[:min(n, int64(len(d.b)))])
	d.b = d.b[len(s):]
	return s
}

func (d *partDecoder) nodes() (list []Node) {
	for range min(d.length(), maxNodes) {
		n := Node{Name: d.text(), Host: d.text(), Address: d.text(), Version: d.text(), State: d.text()}
		n.Started, n.Ready, n.Revision = time.UnixMicro(d.number()), d.number() == 1, d.number()
		n.Lanes, n.InFlight, n.Queued = int(d.number()), d.number(), d.number()
		list = append(list, n)
	}
	return list
}
