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
	// KafkaAway is since when the daemon reads nothing since no broker answers it; zero: it reads.
	KafkaAway time.Time
	Report    Report
}
